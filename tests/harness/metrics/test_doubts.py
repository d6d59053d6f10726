"""Figures that cannot be are marked in every table: a run whose baseline was measured beside a load that then fell."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from run_samples import SAMPLING, begun, chain_block, prefill, request, step

from specbench.harness.judge.comparison import compare_runs
from specbench.harness.judge.crossover_record import crossover_record
from specbench.harness.judge.stored import read_runs
from specbench.harness.judge.sweep_figures import _point
from specbench.harness.metrics import doubts
from specbench.harness.metrics.run_results import results, results_of
from specbench.harness.spec.arm import ArmSetup, parse_arm
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.arm_record import NOT_PLAUSIBLE
from specbench.harness.store.block_records import BlockRecord, MachineSeen, add_record, overload
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.cells import arm_name, row_name
from specbench.reports.charts.chart import Styles
from specbench.reports.experiments.compare_table import compare_csv, compare_json, compare_table
from specbench.reports.experiments.crossover_table import crossover_tables, display_names
from specbench.reports.markdown import markdown_result
from specbench.reports.run.comparison import comparison_table
from specbench.reports.run.document import run_document
from specbench.reports.run.view import view_run
from specbench.reports.site.compare_page import matrix_table
from specbench.reports.site.crossover_page import crossover_page
from specbench.reports.site.groups import by_load
from specbench.reports.site.run_page import run_page
from specbench.reports.site.runs import read_site_runs
from specbench.reports.site.runs_table import best_speedup

ARM = "naive-eagle:k=4"
MAX_GAIN = doubts.MAX_GAIN
SLOW_MS, QUIET_MS = 45.0, 8.0


@pytest.fixture(autouse=True)
def the_rule(monkeypatch):
    assert MAX_GAIN == 1.05
    monkeypatch.setattr(doubts, "MAX_GAIN", MAX_GAIN)


def falling_load(folder: Path, num_repeats: int = 1, base_ms: float = SLOW_MS) -> RunDirectory:
    """The baseline's rounds last `base_ms` beside other work, the arm's 10 ms without: 2.5 tokens a forward."""
    run = RunDirectory.create(folder, "run", begun("no-spec", ARM, sampling=replace(SAMPLING, max_concurrency=1)))
    for repeat in range(num_repeats):
        run.append("no-spec", repeat, **chain_block([0] * 12, k=0, round_ms=base_ms))
        run.append(ARM, repeat, **chain_block([4, 0, 2, 1, 3, 0], round_ms=10.0))
    run.finish(results(run.frames()))
    return run


def test_an_answer_of_one_token_does_not_make_the_others_impossible(tmp_path):
    """The forward that was running when it ended keeps no token, and it has no TPOT."""
    run = RunDirectory.create(tmp_path, "run", begun("no-spec", ARM, sampling=replace(SAMPLING, max_concurrency=1)))
    short = request(9, submit_ms=5000, first_ms=5020, last_ms=5020, num_output_tokens=1)
    for arm, accepted, more in (("no-spec", [0] * 12, {"k": 0}), (ARM, [4, 0, 2, 1, 3, 0], {})):
        block = chain_block(accepted, **more)
        lost = [step(901, 9, 5020, 5030, k=4, j=0, emitted=0)] if arm == ARM else []
        steps = [*block["steps"], prefill(900, 9, 5000, 5020), *lost]
        run.append(arm, 0, requests=[*block["requests"], short], steps=steps)
    _, arm = results(run.frames()).arms
    assert arm.speedup.tpot_ratio == pytest.approx(2.5, abs=0.1) and arm.marks == ()


def test_the_table_has_the_mark_no_interval_and_says_why(tmp_path):
    run = falling_load(tmp_path)
    _, arm = results_of(run).arms
    assert arm.speedup.tps_ratio > 8 and arm.acceptance.tokens_per_forward == pytest.approx(2.52, abs=0.01)
    (mark,) = arm.marks
    assert mark.startswith("IMPOSSIBLE: TPS 8.") and "with 2.5" in mark and "no-spec ran on a slower machine" in mark
    table = comparison_table(view_run(run))
    row = dict(zip(table.headers, table.rows[1], strict=True))
    assert row["TPS (x)"].endswith(f"({arm.speedup.tps_ratio:.2f}x)") and row["marks"] == mark
    assert sum("one repeat has no interval" in note and "--num-repeats 3" in note for note in table.notes) == 1
    planned = replace(run.record, config=RunConfig(arms=(parse_arm(ARM),), num_repeats=4))
    (note,) = [note for note in comparison_table(replace(view_run(run), record=planned)).notes if "one repeat" in note]
    assert note.endswith("(4 repeats are planned).")
    (section,) = run_document(view_run(run)).sections
    others = [table for table in section.tables if table.title]
    assert {table.rows[-1][0] for table in others} == {f"{ARM} (IMPOSSIBLE)"}, "in every table"
    (factors,) = [table for table in others if table.title.startswith("Speed-up")]
    assert factors.rows[0][1] == f"{arm.speedup.tpot_ratio:.2f}x", "without an interval"


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


def test_answers_that_came_in_one_piece_are_counted(tmp_path):
    """A buffering proxy, say: the mean has their zeros, the speed-up cannot. One token is one piece anyway."""
    run = falling_load(tmp_path, base_ms=QUIET_MS)
    times = dict(first_ms=8000, last_ms=8000)
    more = [request(n, submit_ms=7000, num_output_tokens=num, **times) for n, num in ((7, 5), (8, 1), (9, 2))]
    run.append(ARM, 1, **{**chain_block([4, 0, 2]), "requests": more})
    base, arm = results(run.frames()).arms
    alike = len(run.frames().requests.query("arm == @ARM and num_output_tokens >= 2"))
    mark = f"answers in one piece: 2 of {alike} requests; their TPOT of 0 counts in the mean, not in the speed-up"
    assert arm.marks == (mark,) and base.marks == () and doubts.is_doubt(mark)
    long = [request(n, submit_ms=7000, first_ms=8000, last_ms=8100, num_output_tokens=9) for n in range(100, 298)]
    few = RunDirectory.create(tmp_path, "run", begun("no-spec", ARM))
    few.append(ARM, 0, **{**chain_block([4, 0, 2]), "requests": [*more, *long]})
    assert not any(map(doubts.is_doubt, results(few.frames()).arms[1].marks)), "2 of 200 short ones, read at once"


def test_an_unstable_warm_up_is_marked(tmp_path):
    run = falling_load(tmp_path, base_ms=QUIET_MS)
    run.describe_arm(ARM, warmup="not stable after 30.0 s (412 rounds)")
    run.describe_arm("no-spec", warmup="stable after 3.0 s (40 rounds)")
    base, arm = results(run.frames()).arms
    assert arm.marks == ("warm-up not stable after 30.0 s (412 rounds)",) and base.marks == ()


def saying(folder: Path, *tokens: int | None, temperature: float = 0.0) -> RunDirectory:
    """A repeat for each of `tokens`, which is all that the first request of the arm says; None: the request failed."""
    run = RunDirectory.create(folder, "run", begun(ARM, sampling=replace(SAMPLING, temperature=temperature)))
    for repeat, token in enumerate(tokens):
        block = chain_block([4, 0, 2])
        first = block["requests"][0]
        first["output_token_ids"] = [token or 0] * first["num_output_tokens"]
        first["finish_reason"] = "error" if token is None else "length"
        block["requests"].reverse()  # in the order of their ends
        run.append(ARM, repeat, **block)
    return run


def test_a_first_prompt_that_ends_otherwise_than_it_began_is_marked_at_temperature_0(tmp_path):
    (arm,) = results(saying(tmp_path / "a", 5, 5, 6).frames()).arms
    (mark,) = arm.marks
    assert mark.startswith(
        "output not stable: greedy output of prompt p0 in repeat 3 is not that of repeat 1; right only"
    )
    assert doubts.is_doubt(mark)
    for name, run in {
        "as it began": saying(tmp_path / "b", 5, 6, 5),
        "one block": saying(tmp_path / "c", 5),
        "sampled": saying(tmp_path / "d", 5, 6, temperature=0.7),
        "failed": saying(tmp_path / "e", 5, None),
    }.items():
        assert not any(doubts.is_doubt(mark) for mark in results(run.frames()).arms[0].marks), name


def test_outputs_that_an_engine_does_not_tell_are_not_compared(tmp_path):
    requests = saying(tmp_path, 5, 6).frames().requests
    assert len(list(doubts.changed_output(requests))) == 1
    assert list(doubts.changed_output(requests.assign(output_sha256=None))) == []


def test_weights_that_give_no_plausible_output_are_a_doubt(tmp_path):
    run = falling_load(tmp_path, base_ms=QUIET_MS)
    note = f"{NOT_PLAUSIBLE}: -11.50 nats per token of plain English, a uniform guess has -10.80"
    run.describe_arm(ARM, notes=(note,))
    run.finish(results(run.frames()))
    record = crossover_record([_point(1, run, None)])
    tables = crossover_tables(record, display_names(record))
    assert sum(f"{ARM}, concurrency 1: {note}" == said for said in tables[0].notes) == 1
    table = comparison_table(view_run(run))
    assert dict(zip(table.headers, table.rows[1], strict=True))["marks"] == note


def test_a_sweep_says_it_by_concurrency(tmp_path):
    points = [_point(load, falling_load(tmp_path / str(load), base_ms=ms), None) for load, ms in ((1, 45.0), (2, 8.0))]
    record = crossover_record(points)
    tables = crossover_tables(record, display_names(record))
    for table in tables:
        assert table.rows[1][0] == f"{ARM} (IMPOSSIBLE)"
    notes = tables[0].notes
    assert [note.split(": ")[0] for note in notes if "IMPOSSIBLE: TPS" in note] == [
        f"{ARM} (IMPOSSIBLE), concurrency 1"
    ]


def test_stored_runs_side_by_side_show_it(tmp_path):
    run = falling_load(tmp_path)
    (mark,) = results_of(run).arms[1].marks
    compared = compare_runs(read_runs([run.path])[0])
    table = compare_table(compared)
    assert {row[1] for row in table.rows} == {f"{ARM} (IMPOSSIBLE)"}
    assert f"{run.record.run_id}: {ARM}: {mark}" in table.notes
    assert [row["marks"] for row in json.loads(compare_json(compared))["rows"]] == [[], [mark]]
    rows = csv.DictReader(io.StringIO(compare_csv(compared)))
    assert {(row["arm"], row["marks"]) for row in rows} == {("no-spec", ""), (ARM, mark)}


def test_the_site_shows_it_and_makes_no_headline_of_it(tmp_path):
    runs, problems = read_site_runs([falling_load(tmp_path).path])
    (run,) = runs
    assert problems == [] and best_speedup(run) is None
    pages = [crossover_page(runs, Styles()), run_page(run, None, None, Styles(), whole=True)]
    tables = [table for page in pages for section in page.sections for table in section.tables]
    tables = [matrix_table(by_load(runs)[0]), *(table for table in tables if table.headers[0] == "strategy")]
    rows = [[row for row in table.rows if str(row[0]).startswith(ARM)] for table in tables]
    assert len(rows) == 7 and all(rows)
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
    assert "equal those of 'no-spec'" in note and "in bfloat16" in note and "exactly tied" in note
    run.append(ARM, 0, **chain_block([0] * 12, k=0))
    table = comparison_table(view_run(run))
    assert "100%" in table.rows[1] and not any("same output:" in note for note in table.notes)
    assert "| 100% |" in markdown_result(table)


def test_of_several_disturbed_blocks_the_mark_names_the_highest_load(tmp_path):
    run = falling_load(tmp_path, num_repeats=3, base_ms=QUIET_MS)
    for block, loads in enumerate(((2.9, 2.1), (3.0, 8.2), (2.4, 2.6))):
        machine = MachineSeen(cores=2)
        add_record(run.path, BlockRecord(arm=ARM, block=block, position=0, load_average=loads, machine=machine))
    _, arm = results(run.frames()).arms
    assert "DISTURBED: load 8.2 on 2 cores (3 of 3 blocks)" in arm.marks


def test_what_the_machine_did_beside_a_block_marks_its_row(tmp_path):
    run = falling_load(tmp_path, num_repeats=2, base_ms=QUIET_MS)
    machine = MachineSeen(cores=2)
    for label, block, loads in (
        ("no-spec", 0, (6.9, 4.8)),
        ("no-spec", 1, (1.9, 1.2)),
        (ARM, 0, (1.2, 1.9)),
        (ARM, 1, (1.9, 1.9)),
    ):
        reasons = overload(min(loads), machine.cores)
        seen = BlockRecord(arm=label, block=block, position=0, load_average=loads, machine=machine, reasons=reasons)
        add_record(run.path, seen)
    base, arm = results(run.frames()).arms
    assert base.marks == ("DISTURBED: load 4.8 on 2 cores (1 of 2 blocks)",) and arm.marks == ()
    table = comparison_table(view_run(RunDirectory.open(run.path)))
    assert "around the blocks: load average: 1.20 to 6.90." in table.notes
    assert row_name(base) == "no-spec (DISTURBED)" and arm_name(base) == "no-spec"


@pytest.fixture
def disturbed(tmp_path) -> RunDirectory:
    """A closed run; the last line of its blocks.jsonl says that the arm's second block was disturbed."""
    run = falling_load(tmp_path, num_repeats=2, base_ms=QUIET_MS)
    for block, label in ((0, "no-spec"), (0, ARM), (1, "no-spec"), (1, ARM)):
        loads = (8.0, 8.0) if (label, block) == (ARM, 1) else (0.5, 0.5)
        machine = MachineSeen(cores=2)
        add_record(run.path, BlockRecord(arm=label, block=block, position=0, load_average=loads, machine=machine))
    run.finish(results(run.frames()))
    return run


def lose_records(run: RunDirectory, kept: int) -> RunDirectory:
    """Keeps the first records."""
    file = run.path / "blocks.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:kept]))
    return RunDirectory.open(run.path)


def test_a_disturbed_block_is_one_of_all_that_were_measured(disturbed):
    """Not of those whose records are left."""
    file = disturbed.path / "blocks.jsonl"
    file.write_text(file.read_text().splitlines(keepends=True)[-1])
    marks = results(RunDirectory.open(disturbed.path).frames()).arms[1].marks
    assert "DISTURBED: load 8.0 on 2 cores (1 of 2 blocks)" in marks


def test_a_block_that_lost_its_record_marks_its_row(disturbed):
    """Derived again, the row no longer says that it was disturbed: then it says that nobody knows."""
    assert results(disturbed.frames()).arms[1].marks == ("DISTURBED: load 8.0 on 2 cores (1 of 2 blocks)",)
    run = lose_records(disturbed, 3)
    lost = "machine not recorded: around 1 of 2 blocks, which may have been disturbed"
    base, arm = results(run.frames()).arms
    assert base.marks == () and arm.marks == (lost,)
    assert lost in markdown_result(comparison_table(view_run(run)))
    compared = compare_table(compare_runs(read_runs([run.path])[0]))
    assert any(lost in note for note in compared.notes)


def test_stored_results_say_it_too_and_keep_what_they_knew(disturbed):
    stored = results_of(disturbed)
    whole = (disturbed.path / "blocks.jsonl").read_text()
    marks = results_of(lose_records(disturbed, 2)).arms[1].marks
    assert [mark.partition(":")[0] for mark in marks] == ["DISTURBED", "machine not recorded"]
    (disturbed.path / "blocks.jsonl").write_text(whole)
    assert results_of(disturbed) == stored


def test_a_run_without_any_records_has_no_such_mark(disturbed):
    (disturbed.path / "blocks.jsonl").unlink()
    assert [arm.marks for arm in results(disturbed.frames()).arms] == [(), ()]
