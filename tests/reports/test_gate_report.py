"""What a gate says: comment, annotations, JUnit, JSON; whatever labels hold is shown and never run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from specbench.harness.judge.gate_result import (
    CORRECTNESS,
    FAILED,
    INCONCLUSIVE,
    NO_DATA,
    NOT_COMPARABLE,
    PASSED,
    SKIPPED,
    STRUCTURAL,
    TIMED,
    VALIDITY,
    GateReport,
    GateResult,
    exit_code,
)
from specbench.harness.stats.verdict import Metric, Pairs, compare
from specbench.reports.experiments.gate_report import MAX_CHARACTERS, comment, gate_json, gate_table, marker
from specbench.reports.experiments.github import escape_data, escape_property, workflow_commands, write_summary
from specbench.reports.experiments.junit import junit_xml

EVIL = "</script><img src=x onerror=alert(1)> | --> `x` \x00\r\n::error::100%"


def timed(status, change=0.03, **more):
    metric = Metric(name="step time", better="lower", pairs="prompts", unit="ms")
    pairs = [(10.0, 10.0 * (1 + change) * (1 + 0.001 * (n % 3))) for n in range(12)]
    (found,) = compare([Pairs(metric=metric, values=pairs)])
    values = {"gate": "step_ms", "kind": TIMED, "arm": "eagle:k=4", "unit": "ms", "limit": "not slower by 0.01"}
    return GateResult(**values | more, status=status, value=found.b, reference=found.a, comparison=found)


def counted(status, arm="eagle:k=4", **more):
    values = {"gate": "syncs_per_round", "kind": STRUCTURAL, "limit": "at most 1", "value": 2.0, "reference": 1.0}
    return GateResult(**values | more, arm=arm, status=status)


def test_figures_that_show_gives_otherwise_have_a_note():
    """The gate's are means over pairs, those of `specbench show` medians over repeats."""
    assert "geometric means over the pairs" in gate_table(report(timed(PASSED))).notes[0]
    assert "geometric means over the pairs" in comment(report(timed(PASSED)))
    assert len(gate_table(report(counted(PASSED))).notes) == 1


def report(*results, code=1, suite="cpu-small", **more):
    values = {
        "suite": suite,
        "run_id": "20260102T030405Z-change-0a1b2c3d",
        "baseline_id": "20260102T030405Z-base-0a1b2c3e",
        "results": results,
        "mismatches": (),
        "notes": (),
        "commands": {"run": "specbench run -s eagle:k=4", "baseline": "specbench run -s eagle:k=4"},
        "exit_code": code,
    }
    return GateReport(**values | more)


def test_a_comment_that_asks_to_be_read():
    text = comment(report(timed(FAILED), counted(PASSED, value=1.0), counted(INCONCLUSIVE, reason="too noisy")))
    lines = text.splitlines()
    assert lines[0] == "<!-- specbench:cpu-small -->"
    assert "regressed" in lines[1] and "regressed: step\\_ms (1 of 3 checks): please read." in text
    assert re.search(r"\| step\\_ms \| eagle:k=4 \| 10 ms \| 10.31 ms \| \+3.10% \\\[\+3.0\d%, \+3.1\d%\\\]", text)
    assert text.count("<details>") == text.count("</details>") == 2
    assert "```sh\n# run\nspecbench run -s eagle:k=4" in text


def test_a_comment_that_needs_no_action():
    text = comment(report(timed(PASSED, change=0.0), counted(SKIPPED), code=0))
    assert "1 gate passed: no action needed." in text and "~ +0.100%" in text


def test_comments_show_text_literally():
    text = comment(report(counted(FAILED, arm=EVIL, reason=EVIL), suite=EVIL, notes=(EVIL,), run_id=EVIL))
    outside = re.sub(r"```.*?```", "", text, flags=re.S)
    tags = set(re.findall(r"<[^>]*>", outside))
    assert tags == {marker(EVIL), "<details>", "</details>", "<summary>", "</summary>"}
    assert "-->" not in marker(EVIL)[4:-3] and text.splitlines()[0] == marker(EVIL)
    assert "\\|" in outside and "::error::" not in text.splitlines()


def test_comments_call_nobody():
    """Names in code are not looked for."""
    who = "@octocat, @org/team"
    text = comment(
        report(counted(FAILED, arm=who, reason=who), suite=who, notes=(who,), run_id=who, commands={who: who})
    )
    outside = re.sub(r"```.*?```", "", text, flags=re.S)
    assert "octocat" in outside and not re.search(r"@\w", outside)


def test_commands_cannot_end_their_fence():
    text = comment(report(counted(FAILED), commands={"run": "x\n```\n<img src=x>"}))
    assert "````sh" in text and text.rstrip().count("````") == 2


@pytest.mark.parametrize("num", [100, 400, 3000])
def test_long_comments_are_cut_and_keep_the_marker(num):
    results = [counted(FAILED, arm=f"arm {n} " + "x" * 60, reason="r" * 100) for n in range(num)]
    text = comment(report(*results))
    assert len(text) <= MAX_CHARACTERS and text.startswith("<!-- specbench:cpu-small -->")
    assert ("(cut: too long for GitHub" in text) == (num > 100)


def test_annotations():
    lines = workflow_commands(report(timed(FAILED), counted(NO_DATA, reason="none"), counted(PASSED))).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::error"]
    assert lines[0].startswith("::error title=specbench cpu-small%3A step_ms::eagle:k=4: FAILED; +3.10%25 [")


@pytest.mark.parametrize("kind", [STRUCTURAL, TIMED, VALIDITY, CORRECTNESS])
@pytest.mark.parametrize("status", [PASSED, FAILED, NOT_COMPARABLE, NO_DATA, INCONCLUSIVE, SKIPPED])
@pytest.mark.parametrize("inconclusive", ["fail", "warn", "pass"])
@pytest.mark.parametrize("missing", ["fail", "warn"])
def test_annotations_and_junit_agree_with_the_exit_code(kind, status, inconclusive, missing):
    words = {"inconclusive": inconclusive, "missing": missing}
    results = [counted(PASSED), replace(counted(status), kind=kind)]
    code = exit_code(results, **words)
    given = report(*results, code=code, **words)
    errors = [line for line in workflow_commands(given).splitlines() if line.startswith("::error ")]
    (suite,) = ElementTree.fromstring(junit_xml(given))
    assert bool(errors) == bool(code) == (int(suite.get("failures")) + int(suite.get("errors")) > 0)
    elements = [child.tag for child in suite[1] if child.tag != "properties"]
    assert elements == ([] if status == PASSED else elements) and len(elements) == (status != PASSED)
    assert bool(workflow_commands(given)) == bool(
        code or (status, inconclusive) == (INCONCLUSIVE, "warn") or (status, missing) == (NO_DATA, "warn")
    )
    assert ("please read" in comment(given)) == bool(code)


def test_annotations_are_one_line_each_whatever_labels_hold():
    text = workflow_commands(report(counted(FAILED, arm=EVIL, reason=EVIL), suite=EVIL))
    assert len(text.splitlines()) == 1 and "100%25" in text and "%0D%0A" in text
    assert escape_data("a%\r\nb") == "a%25%0D%0Ab" and escape_property("a:b,c") == "a%3Ab%2Cc"


def test_step_summary(tmp_path):
    given = report(counted(FAILED))
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    assert write_summary(given, {"GITHUB_STEP_SUMMARY": str(file)}) == ""
    assert file.read_text() == "before\n" + comment(given) + "\n"
    assert write_summary(given, {}) == ""


@pytest.mark.parametrize("room", [5000, 2000, 600])
def test_a_step_summary_that_does_not_fit_is_shortened_and_says_so(tmp_path, room):
    given = report(*(counted(FAILED, arm=f"arm {n} \u00e4" * 3, reason="r" * 50) for n in range(60)))
    file = tmp_path / "summary.md"
    file.write_text("x" * ((1 << 20) - room))
    assert write_summary(given, {"GITHUB_STEP_SUMMARY": str(file)}) == ""
    added = file.read_bytes()[(1 << 20) - room :].decode()
    assert len(file.read_bytes()) <= 1 << 20 and "(cut: too long for GitHub" in added
    kept = added.partition("\n\n(cut")[0]
    assert kept and (comment(given) + "\n").startswith(kept + "\n"), "whole lines of it"


def test_a_full_step_summary_is_said_elsewhere(tmp_path):
    file = tmp_path / "summary.md"
    file.write_text("x" * (1 << 20))
    said = write_summary(report(counted(FAILED)), {"GITHUB_STEP_SUMMARY": str(file)})
    assert said.startswith("::warning title=specbench cpu-small::the step summary is full") and said.endswith("\n")
    assert file.stat().st_size == 1 << 20


def test_junit():
    results = timed(FAILED), counted(PASSED), counted(NO_DATA), counted(INCONCLUSIVE), counted(SKIPPED)
    (suite,) = ElementTree.fromstring(junit_xml(report(*results)).partition("\n")[2])
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "2",
    }
    first = suite[0]
    assert first.get("name") == "step_ms" and first.find("failure") is not None
    properties = {p.get("name"): p.get("value") for p in first.find("properties")}
    assert properties["verdict"] == "regressed" and float(properties["change"]) == pytest.approx(0.031, abs=0.001)


def test_junit_with_hostile_labels_is_xml():
    (suite,) = ElementTree.fromstring(junit_xml(report(counted(FAILED, arm=EVIL, reason=EVIL), suite=EVIL)))
    assert "onerror=alert(1)" in suite[0].get("classname") and "\x00" not in suite[0].get("classname")


def test_table_and_json():
    given = report(counted(PASSED), timed(FAILED), notes=("a note",))
    table = gate_table(given)
    assert table.rows[0][0] == "step_ms" and table.rows[0][6] == "FAILED: regressed" and "a note" in table.notes
    plain = json.loads(gate_json(given))
    assert plain["verdict"] == "regressed" and plain["exit_code"] == 1 and len(plain["results"]) == 2
    nan = json.loads(gate_json(report(replace(counted(PASSED), value=float("nan")))))
    assert nan["results"][0]["value"] is None
