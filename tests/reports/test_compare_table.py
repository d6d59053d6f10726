from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from compare_samples import Machine, make_run
from floor_samples import store

from specbench.harness.judge.comparison import compare_runs
from specbench.harness.judge.keys import Mismatch
from specbench.harness.judge.stored import Problem, read_runs
from specbench.reports.cells import change_text
from specbench.reports.experiments.compare_brief import compare_answer, compare_brief
from specbench.reports.experiments.compare_table import change_cell, compare_csv, compare_json, compare_table
from specbench.reports.markdown import markdown_result
from specbench.reports.terminal import plain_result

EVIL = "eagle:k=4,</script><img src=x onerror=alert(1)>|`x`"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    arms = ("no-spec", EVIL)
    paths = [make_run(folder, Machine(noise_seed=n, step_factor=1 + 0.03 * n), arms=arms) for n in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECBENCH_CACHE", str(folder / "cache"))
        store(0.001)
        return compare_runs(read_runs(paths)[0], problems=[Problem(path="x", reason="x: damaged")])


def test_table(compared):
    table = compare_table(compared)
    (step,) = [row for row in table.rows if row[1] == EVIL and row[2] == "step time ms"]
    assert step[5].startswith("+3.") and step[7] == "regressed" and step[8] == "24 prompts"
    (tokens,) = [row for row in table.rows if row[1] == EVIL and row[2] == "tokens per step"]
    assert tokens[5] == "~ +0.000% [+0.000%, +0.000%]"
    assert not [row for row in table.rows if row[0] == compared.rows[0].run]  # the baseline stands in the others' rows
    assert "problem: x: damaged" in table.notes
    assert EVIL in plain_result(table)


def test_the_answer_and_a_row_for_each_arm(compared):
    answer = compare_answer(compared)
    assert answer.startswith("TPOT of 2 arms: regressed in 2 (most in ") and answer.count("[") == 1, answer
    table = compare_brief(compared, None)
    assert [row[0] for row in table.rows] == ["no-spec", EVIL] and {row[2] for row in table.rows} == {"regressed"}
    assert table.rows[1][1:4:2] == (change_cell(compared.rows[3].comparisons["tpot_ms"]), "72 of 72")
    assert "problem: x: damaged" in table.notes and compared.rows[0].run in table.title
    assert len(compare_brief(compared, 80).headers) < len(table.headers)


def test_the_answer_of_one_arm_and_of_none(compared):
    one = replace(compared, rows=(compared.rows[1], compared.rows[3]))
    answer = compare_answer(one)
    assert answer.startswith(f"{EVIL}: TPOT +3.") and answer.endswith("72 of 72 outputs equal.")
    assert compare_answer(replace(compared, rows=compared.rows[:2])) == "No arm has a counterpart."


def test_of_several_runs_the_largest_change_is_told_with_its_run(compared):
    row = compared.rows[3]
    larger = replace(row.comparisons["tpot_ms"], change=0.2, low=0.19, high=0.21)
    first = replace(row, run="r1", comparisons={**row.comparisons, "tpot_ms": larger})
    answer = compare_answer(replace(compared, rows=(compared.rows[1], first, row)))
    assert answer == f"TPOT of 2 arms: regressed in 2 (most in r1: {EVIL}, +20.0% [+19.0%, +21.0%])."


def test_a_change_elsewhere_than_in_tpot_is_said(compared):
    row = compared.rows[3]
    unlike = Mismatch(run="b", group="hardware", key="cpu", first="x", second="y")
    equal = replace(row.comparisons["tpot_ms"], verdict="equivalent")
    changed = replace(row, comparisons={**row.comparisons, "tpot_ms": equal})
    found = replace(compared, rows=(compared.rows[1], changed), mismatches=(unlike,))
    assert compare_brief(found, None).rows[0][2] == "step time regressed; TPOT equivalent"
    assert compare_answer(found).startswith("NOT COMPARABLE. ")


def test_markdown_shows_labels_literally(compared):
    text = markdown_result(compare_table(compared))
    assert "<img" not in text and "</script>" not in text and "&lt;img" in text


def test_csv(compared):
    rows = list(csv.DictReader(io.StringIO(compare_csv(compared))))
    (step,) = [r for r in rows if r["arm"] == EVIL and r["metric"] == "step_ms" and r["baseline"]]
    assert float(step["change"]) == pytest.approx(0.03, abs=0.005) and step["verdict"] == "regressed"
    assert len(rows) == len(compared.rows) * 5
    assert [r["change"] for r in rows if not r["baseline"]] == [""] * 10


def test_csv_runs_no_formula():
    from specbench.reports.experiments.compare_table import _defused

    assert _defused("=cmd()") == "'=cmd()" and _defused(-1.5) == -1.5 and _defused("eagle") == "eagle"


def test_json(compared):
    plain = json.loads(compare_json(compared))
    assert plain["schema"] == "specbench.compare/2" and len(plain["rows"]) == 4
    assert plain["rows"][3]["comparisons"]["step_ms"]["verdict"] == "regressed"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.02531, "+2.53%"), (-0.00312, "-0.312%"), (0.1243, "+12.4%"), (1.334, "+133%"), (0.0, "+0.000%"), (None, "-")],
)
def test_three_digits_and_a_sign(value, text):
    assert change_text(value) == text
    assert change_cell(None) == "-"
