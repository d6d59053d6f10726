"""The verdict card: every word that a reader decides by, and nothing of a label taken for markup."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ab_samples import ACCEPTED, experiment

from specbench.harness.judge.ab_verdict import judge
from specbench.harness.stats.verdict import Metric, Pairs, compare
from specbench.harness.store.arm_record import Fact
from specbench.harness.store.lock_file import LOCK_FILE
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.cells import change_text, is_no_figure
from specbench.reports.experiments.ab_brief import ab_brief_table
from specbench.reports.experiments.compare_table import change_cell
from specbench.reports.experiments.verdict_table import interval, verdict_table
from specbench.reports.markdown import markdown_result
from specbench.reports.terminal import plain_result


def card(*args, **kwargs):
    return verdict_table(judge(experiment(*args, **kwargs)))


def row(table, name: str) -> dict[str, str]:
    (found,) = [cells for cells in table.rows if cells[0].startswith(name)]
    return dict(zip(table.headers, found, strict=True))


def test_a_regression(tmp_path):
    table = card(tmp_path, change=0.03)
    step = row(table, "step time, ms")
    assert table.title == "B against A: regressed" and step["verdict"] == "regressed" and step["n"] == "10 blocks"
    assert step["change [95% CI]"].startswith("+") and "[+" in step["change [95% CI]"]
    tokens = row(table, "tokens per step")
    assert tokens["verdict"] == "equivalent" and tokens["change [95% CI]"] == "~ +0.00% [+0.00%, +0.00%]"
    assert row(table, "TTFT")["verdict"] == "exploratory" and row(table, "TTFT")["p (Holm)"] == "-"
    assert float(step["MDE"].removesuffix("%")) < 1


def test_inconclusive_says_how_many_more(tmp_path):
    step = row(card(tmp_path, change=-0.01, noise=0.05), "step time")
    assert step["verdict"].startswith("inconclusive: needs about ") and step["verdict"].endswith(" more blocks")
    assert step["change [95% CI]"].startswith("? ")


def test_a_metric_of_too_few_prompts_says_so(tmp_path):
    """Ten blocks, so that times have a verdict, of four prompts each."""
    judged = judge(experiment(tmp_path, num_requests=4))
    assert row(verdict_table(judged), "step time")["verdict"] == "equivalent"
    assert row(verdict_table(judged), "tokens per step")["verdict"] == "exploratory: 4 prompts; a verdict takes 6"
    brief = ab_brief_table(judged, None)
    assert row(brief, "tokens per step")["verdict"] == "exploratory"
    assert brief.notes[0] == "tokens per step: exploratory: 4 prompts; a verdict takes 6"


def test_a_metric_that_the_engine_cannot_know_says_why(tmp_path, monkeypatch):
    run = experiment(tmp_path)
    arms = [replace(arm, unknown={Fact.ACCEPTANCE: "the server does not report it"}) for arm in run.record.arms]
    run.put(replace(run.record, arms=tuple(arms)))
    known = judge(run)
    assert all(not metric.unknown for metric in known.metrics), "it has a figure after all"
    frames = replace(run.frames(), steps=run.frames().steps.assign(num_accepted=None))
    monkeypatch.setattr(RunDirectory, "frames", lambda _: frames)
    judged = judge(run)
    tokens = row(verdict_table(judged), "tokens per step")
    assert tokens["verdict"] == "no data: the server does not report it"
    assert ab_brief_table(judged, None).notes[0] == "tokens per step: no data: the server does not report it"


def test_what_stands_below(tmp_path):
    reasons = {("A", 2): ["throttled: hardware slowdown"]}
    notes = card(tmp_path, reasons=reasons, in_process=True).notes
    text = "\n".join(notes)
    assert (
        "A: eagle:k=2 [synthetic <weights>]" in notes and "in ONE process" in text and "order (seed 42): AB BA" in text
    )
    assert "9 of 10 blocks count, 1 rejected (block 3: A: throttled: hardware slowdown)" in notes
    assert "load average around the blocks: 0.50 to 1.25" in notes and "not checked: throttling" in notes
    assert "120 of 120" not in text and "108 of 108 outputs are the same on both sides" in notes


def test_equal_sides_say_so(tmp_path):
    table = card(tmp_path, is_aa=True)
    assert table.title.startswith("A/A (both sides are the same code and configuration): equivalent")


def test_exploratory_and_invalid(tmp_path):
    assert any("no verdict with fewer than 6 blocks" in note for note in card(tmp_path, num_blocks=3).notes)
    reasons = {("B", n): ["throttled: hardware slowdown"] for n in range(8)}
    table = card(tmp_path, reasons=reasons)
    assert table.title.endswith("invalid") and any("more than 20% of the blocks" in note for note in table.notes)
    assert any(note.endswith("and 3 more)") for note in table.notes)
    changed = card(tmp_path / "changed", change=0.03, reasons=reasons)
    assert {cells[5] for cells in changed.rows} == {"no verdict: invalid"}


def test_wrong_outputs(tmp_path):
    table = card(tmp_path, accepted_b=[4, *ACCEPTED[1:-1], 3], min_same_output=1.0)
    assert any("fewer than the required 100%: WRONG" in note for note in table.notes)
    assert table.title.endswith(", but the answers are WRONG")


def test_without_any_block(tmp_path):
    missing = [(label, n) for label in "AB" for n in range(10)]
    run = experiment(tmp_path, missing=missing, finished=False)
    table = verdict_table(judge(run))
    assert all(cells[5] in ("no data",) for cells in table.rows) and table.title.endswith("(running)")
    (run.path / LOCK_FILE).touch()  # as a killed process leaves it
    assert verdict_table(judge(run)).title.endswith("(interrupted)")


def test_plain_and_markdown(tmp_path):
    table = card(tmp_path, change=-0.03)
    assert "step time, ms" in plain_result(table)
    text = markdown_result(table)
    assert "| step time, ms |" in text and "<weights>" not in text and "&lt;weights&gt;" in text
    assert "\\~ +0.00%" in text


@pytest.mark.parametrize(
    ("value", "text"), [(-0.0251, "-2.51%"), (0.0004, "+0.04%"), (0.123, "+12.3%"), (-0.5, "-50.0%"), (19.0, ">+1000%")]
)
def test_changes_on_a_card(value, text):
    assert change_text(value, max_decimals=2) == text


def test_ends_of_an_interval_that_differ_read_so():
    assert interval(-0.2451, -0.1987) == "[-24.5%, -19.9%]" and interval(0.0, 0.0) == "[+0.00%, +0.00%]"
    assert interval(-0.11234, -0.11187) == "[-11.23%, -11.19%]" and interval(11.0, 12.0) == "[>+1000%, >+1000%]"


def test_an_interval_that_says_nothing_leaves_no_figure():
    """Two prompts: +15.5 % [-81 %, +618 %]. A wide interval on one side of no change is a figure."""
    pairs = Pairs(metric=Metric(name="TPOT", better="lower", pairs="blocks"), values=[(1.0, 1.4), (1.0, 0.95)])
    (found,) = compare([pairs])
    assert found.low < -0.5 and found.high > 4
    assert change_cell(found) == "inconclusive: interval wider than a factor of 3"
    sure = compare([replace(pairs, values=[(1.0, 3.0), (1.0, 3.0), (1.0, 4.0), (1.0, 4.5)])])[0]
    assert sure.low > 0 and (1 + sure.high) / (1 + sure.low) > 1.5 and change_cell(sure).startswith("+257%")
    narrow = compare([replace(pairs, values=[(1.0, 1.1), (1.0, 0.9), (1.0, 1.05), (1.0, 0.97)])])[0]
    assert narrow.low < 0 < narrow.high and change_cell(narrow).endswith("]")
    assert is_no_figure(0.5, 1.6) and not is_no_figure(0.6, 1.6) and not is_no_figure(1.01, 9.0)
    assert not is_no_figure(None, None)
