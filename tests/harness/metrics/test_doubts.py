"""Figures that cannot be are marked in every table: a run whose baseline was measured beside a load that then fell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from run_samples import SAMPLING, begun, chain_block

from specbench.harness.judge.crossover_record import crossover_record
from specbench.harness.judge.sweep_figures import _point
from specbench.harness.metrics import doubts
from specbench.harness.metrics.metrics import results, results_of
from specbench.harness.spec.arm import ArmSetup
from specbench.harness.store.block_records import BlockRecord, MachineSeen, add_record, overload
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.cells import arm_name, row_name
from specbench.reports.charts.chart import Styles
from specbench.reports.experiments.crossover_table import crossover_tables
from specbench.reports.markdown import markdown_result
from specbench.reports.run.comparison import comparison_table
from specbench.reports.run.document import run_document
from specbench.reports.run.view import view_run
from specbench.reports.site.compare_page import matrix_table
from specbench.reports.site.crossover_page import crossover_page
from specbench.reports.site.groups import by_load
from specbench.reports.site.overview_page import best_speedup
from specbench.reports.site.run_page import run_page
from specbench.reports.site.runs import read_site_runs

ARM = "naive-eagle:k=4"
MOST_GAIN = doubts.MOST_GAIN
SLOW_MS, QUIET_MS = 45.0, 8.0


@pytest.fixture(autouse=True)
def the_rule(monkeypatch):
    assert MOST_GAIN == 1.05
    monkeypatch.setattr(doubts, "MOST_GAIN", MOST_GAIN)


def falling_load(folder: Path, num_repeats: int = 1, base_ms: float = SLOW_MS) -> RunDirectory:
    """The baseline's rounds last `base_ms` beside other work, the arm's 10 ms without: 2.5 tokens a forward."""
    run = RunDirectory.create(folder, "run", begun("no-spec", ARM, sampling=replace(SAMPLING, max_concurrency=1)))
    for repeat in range(num_repeats):
        run.append("no-spec", repeat, **chain_block([0] * 12, k=0, round_ms=base_ms))
        run.append(ARM, repeat, **chain_block([4, 0, 2, 1, 3, 0], round_ms=10.0))
    run.finish(results(run.frames()))
    return run


def test_the_table_has_the_mark_no_interval_and_says_why(tmp_path):
    run = falling_load(tmp_path)
    _, arm = results_of(run).arms
    assert arm.speedup.tps_ratio > 8 and arm.acceptance.tokens_per_forward == pytest.approx(2.52, abs=0.01)
    (mark,) = arm.marks
    assert mark.startswith("IMPOSSIBLE: TPS 8.") and "with 2.5" in mark and "no-spec ran on a slower machine" in mark
    table = comparison_table(view_run(run))
    row = dict(zip(table.headers, table.rows[1], strict=True))
    assert row["TPS (x)"].endswith(f"({arm.speedup.tps_ratio:.2f}x)") and row["marks"] == mark
    assert sum("one repeat has no interval" in note for note in table.notes) == 1
    (section,) = run_document(view_run(run)).sections
    others = [table for table in section.tables if table.title]
    assert {table.rows[-1][0] for table in others} == {f"{ARM} (IMPOSSIBLE)"}, "in every table"
    (factors,) = [table for table in others if table.title.startswith("Speed-up")]
    assert factors.rows[0][1] == f"{arm.speedup.tpot_ratio:.3f}", "without an interval"


def test_a_quiet_run_has_neither_mark_nor_less_of_an_interval(tmp_path):
    run = falling_load(tmp_path, num_repeats=3, base_ms=QUIET_MS)
    _, arm = results_of(run).arms
    assert arm.marks == () and arm.speedup.tpot_ratio_low < arm.speedup.tpot_ratio < arm.speedup.tpot_ratio_high
    assert not any("one repeat" in note for note in comparison_table(view_run(run)).notes)


def test_the_limit_is_1_05_of_what_a_forward_gives(tmp_path):
    """Prompts alike: all accept 1 of 4 in every round, two tokens a forward."""
    for base_ms, is_marked in ((10.4, False), (10.6, True)):
        run = RunDirectory.create(tmp_path, "run", begun("no-spec", ARM))
        same = dict(num_requests=1)
        run.append("no-spec", 0, **chain_block([0] * 200, k=0, round_ms=base_ms, **same))
        run.append(ARM, 0, **chain_block([1] * 100, round_ms=10.0, **same))
        _, arm = results(run.frames()).arms
        assert any(mark.startswith("IMPOSSIBLE: TPOT") for mark in arm.marks) == is_marked, base_ms


def test_what_other_switches_or_engines_win_is_not_judged(tmp_path):
    run = RunDirectory.create(tmp_path, "run", begun("no-spec", "no-spec:graph=full", "vllm/eagle"))
    run.append("no-spec", 0, **chain_block([0] * 12, k=0, round_ms=45.0))
    run.append("no-spec:graph=full", 0, **chain_block([0] * 12, k=0, round_ms=10.0))
    run.append("vllm/eagle", 0, **chain_block([4, 0, 2], round_ms=10.0))
    run.describe_arm("vllm/eagle", config=ArmSetup(engine="vllm"))
    assert [arm.marks for arm in results(run.frames()).arms] == [()] * 3


def test_requests_beside_each_other_share_forwards_and_are_not_judged(tmp_path):
    run = RunDirectory.create(tmp_path, "run", begun("no-spec", ARM))
    for label, block in (("no-spec", chain_block([0] * 12, k=0, round_ms=SLOW_MS)), (ARM, chain_block([4, 0, 2]))):
        for row in block["requests"]:
            row["t_submit_ns"] = 0
        run.append(label, 0, **block)
    assert results(run.frames()).arms[1].marks == ()


def test_an_unstable_warm_up_is_marked(tmp_path):
    run = falling_load(tmp_path, base_ms=QUIET_MS)
    run.describe_arm(ARM, warmup="not stable after 30.0 s (412 rounds)")
    run.describe_arm("no-spec", warmup="stable after 3.0 s (40 rounds)")
    base, arm = results(run.frames()).arms
    assert arm.marks == ("warm-up not stable after 30.0 s (412 rounds)",) and base.marks == ()


def test_a_sweep_says_it_by_concurrency(tmp_path):
    points = [_point(load, falling_load(tmp_path / str(load), base_ms=ms), None) for load, ms in ((1, 45.0), (2, 8.0))]
    for table in crossover_tables(crossover_record(points)):
        assert table.rows[1][0] == f"{ARM} (IMPOSSIBLE)"
    notes = crossover_tables(crossover_record(points))[0].notes
    assert [note.split(": ")[0] for note in notes if "IMPOSSIBLE: TPS" in note] == [
        f"{ARM} (IMPOSSIBLE), concurrency 1"
    ]


def test_the_site_shows_it_and_makes_no_headline_of_it(tmp_path):
    runs, problems = read_site_runs([falling_load(tmp_path).path])
    (run,) = runs
    assert problems == [] and best_speedup(run) is None
    pages = [crossover_page(runs, Styles()), run_page(run, None, None, Styles(), whole=True)]
    tables = [table for page in pages for section in page.sections for table in section.tables]
    tables = [matrix_table(by_load(runs)[0]), *(table for table in tables if table.headers[0] == "strategy")]
    rows = [[row for row in table.rows if str(row[0]).startswith(ARM)] for table in tables]
    assert len(rows) == 3 and all(rows)
    assert all(any("IMPOSSIBLE" in str(cell) for cell in row) for found in rows for row in found)


def test_marks_and_intervals_of_a_stored_run_are_made_anew(tmp_path):
    """By its stored figures: of a run of before these rules the table says the same."""
    run = falling_load(tmp_path)
    expected = results_of(run)
    base, arm = expected.arms
    older = replace(arm, marks=(), speedup=replace(arm.speedup, tpot_ratio_low=10.6, tpot_ratio_high=13.8))
    run.put(replace(run.record, results=replace(expected, rules=0, arms=(base, older))))
    assert results_of(RunDirectory.open(run.path)) == expected


def test_same_output_stands_in_the_main_table_with_its_reason(tmp_path):
    record = begun("no-spec", ARM)
    run = RunDirectory.create(tmp_path, "run", replace(record, model=replace(record.model, dtype="bfloat16")))
    other = chain_block([0] * 12, k=0)
    for row in other["requests"][:1]:
        row["output_token_ids"] = [8] * row["num_output_tokens"]
    run.append("no-spec", 0, **chain_block([0] * 12, k=0))
    run.append(ARM, 0, **other)
    table = comparison_table(view_run(run))
    assert [dict(zip(table.headers, row, strict=True))["same output"] for row in table.rows] == ["-", "75%"]
    (note,) = [note for note in table.notes if note.startswith("same output:")]
    assert "tokens of 'no-spec'" in note and "in bfloat16" in note and "exactly tied" in note
    run.append(ARM, 0, **chain_block([0] * 12, k=0))
    table = comparison_table(view_run(run))
    assert "100%" in table.rows[1] and not any("same output:" in note for note in table.notes)
    assert "| 100% |" in markdown_result(table)


def test_what_the_machine_did_beside_a_block_marks_its_row(tmp_path):
    run = falling_load(tmp_path, num_repeats=2, base_ms=QUIET_MS)
    machine = MachineSeen(cores=2)
    for label, block, loads in (("no-spec", 0, (6.9, 4.8)), ("no-spec", 1, (1.9, 1.2)), (ARM, 0, (1.2, 1.9))):
        reasons = overload(min(loads), machine.cores)
        seen = BlockRecord(arm=label, block=block, position=0, load_average=loads, machine=machine, reasons=reasons)
        add_record(run.path, seen)
    base, arm = results(run.frames()).arms
    assert base.marks == ("DISTURBED: load 4.8 on 2 cores (1 of 2 blocks)",) and arm.marks == ()
    table = comparison_table(view_run(RunDirectory.open(run.path)))
    assert "around the blocks: load average: 1.20 to 6.90." in table.notes
    assert row_name(base) == "no-spec (DISTURBED)" and arm_name(base) == "no-spec"
