"""An A/B run under a policy: B against A, by the blocks that `specbench ab` itself would count."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ab_samples import ACCEPTED, experiment

from specbench.harness.judge.ab_verdict import judge
from specbench.harness.judge.comparison import compare_runs
from specbench.harness.judge.gate import run_gates
from specbench.harness.judge.gate_result import FAILED, NO_DATA, PASSED
from specbench.harness.judge.policy import parse_policy
from specbench.harness.judge.stored import read_run
from specbench.harness.store.ab_blocks import missing_blocks
from specbench.harness.store.ab_record import SideRecord
from specbench.harness.store.block_records import BlockRecord, add_record, read_records
from specbench.harness.store.inputs_record import WorkloadRecord

GATES = {"step_ms": {}, "tokens_per_step": {}, "tpot_ms": {}}
FEWER = [max(0, j - 1) if i % 2 else j for i, j in enumerate(ACCEPTED)]
THROTTLED = ["throttled: hardware slowdown"]


pytestmark = pytest.mark.usefixtures("own_cache")


def stored(tmp_path, **more):
    return read_run(experiment(tmp_path, **more).path)


def gated(run, gates=GATES, **head):
    return run_gates(parse_policy({"gate": gates, **head}), run)


def by_gate(report):
    return {r.gate: r for r in report.results}


@pytest.mark.parametrize(
    ("more", "must_fail"),
    [
        ({"change": 0.03}, {"step_ms", "tpot_ms"}),
        ({"accepted_b": FEWER}, {"tokens_per_step", "tpot_ms"}),
        ({"change": -0.03}, set()),
    ],
    ids=["step time +3%", "less acceptance", "faster"],
)
def test_planted_regressions(tmp_path, more, must_fail):
    report = gated(stored(tmp_path, **more))
    assert {r.gate for r in report.with_status(FAILED)} == must_fail and report.exit_code == bool(must_fail)
    assert {r.arm for r in report.results if r.kind == "timed"} == {"B"}
    assert report.baseline_id == "arm A of the same run" and {"A: eagle:k=2", "B: eagle:k=4"} <= set(report.notes)


def test_unchanged_code_passes_20_of_20(tmp_path):
    runs = (stored(tmp_path, seed=seed, num_requests=6, num_blocks=6, noise=0.002) for seed in range(20))
    assert [gated(run, inconclusive="fail").exit_code for run in runs] == [0] * 20


def test_pairs_are_those_of_the_experiment(tmp_path):
    directory = experiment(tmp_path, change=0.03, reasons={("B", 4): THROTTLED}, failed=[("A", 7)])
    record = {m.metric.name: m for m in judge(directory).metrics}
    run = read_run(directory.path)
    for found in (
        {r.comparison.metric.name: r.comparison for r in gated(run).results if r.comparison},
        {c.metric.name: c for c in compare_runs([run]).rows[1].comparisons.values()},
    ):
        for name in ("step time", "tokens per step", "TPOT"):
            assert found[name].change == pytest.approx(record[name].change)
            assert (found[name].low, found[name].high) == pytest.approx((record[name].low, record[name].high))
            assert (found[name].num_pairs, found[name].metric.pairs) == (
                record[name].num_pairs,
                record[name].metric.pairs,
            )
            assert found[name].verdict == record[name].verdict


def test_rejected_blocks_do_not_enter_the_pairs(tmp_path):
    run = stored(tmp_path, change=0.03, reasons={("A", 2): THROTTLED})
    report = gated(run)
    assert by_gate(report)["step_ms"].comparison.num_pairs == 9 and by_gate(report)["ab_blocks"].status == PASSED
    assert "block 3 is left out: A: throttled: hardware slowdown" in run.warnings


@pytest.mark.parametrize("kept", [0, 40])
def test_a_block_that_lost_its_record_is_rejected_and_measured_again(tmp_path, kept):
    """Its last line was removed, or torn after the experiment had ended; it said why the block does not count."""
    directory = experiment(tmp_path, reasons={("A", 9): THROTTLED})
    file = directory.path / "blocks.jsonl"
    *whole, last = file.read_text().splitlines()
    assert judge(directory).num_rejected == 1 and missing_blocks(directory.record.ab.plan, directory) == []
    assert '"A", "block": 9' in last
    file.write_text("\n".join([*whole, last[:kept]]))
    judged = judge(directory)
    assert (judged.num_kept, judged.num_rejected) == (9, 1)
    assert judged.blocks[9].reasons == ("A: what the machine did was not recorded",)
    assert missing_blocks(judged.plan, directory) == [(9, ("B", "A"))]


def test_an_experiment_without_any_records_counts(tmp_path):
    directory = experiment(tmp_path)
    (directory.path / "blocks.jsonl").unlink()
    judged = judge(directory)
    assert (judged.num_kept, judged.num_rejected) == (10, 0) and missing_blocks(judged.plan, directory) == []


@pytest.mark.parametrize("change", [0.3, 0.0])
def test_more_than_a_fifth_rejected_is_invalid(tmp_path, change):
    run = stored(tmp_path, change=change, reasons={("A", n): THROTTLED for n in (0, 3, 7)})
    report = gated(run)
    assert report.exit_code == 4
    assert {by_gate(report)[name].status for name in GATES} == {NO_DATA}
    assert "3 of 10 blocks are rejected, more than 20%" in by_gate(report)["ab_blocks"].reason
    assert gated(run, missing="warn").exit_code == 4, "an invalid measurement is no missing one"
    compared = compare_runs([run])
    assert {c.verdict for c in compared.rows[1].comparisons.values()} == {"exploratory"}
    assert any("more than 20%" in note for note in compared.notes)


def test_a_run_of_rejected_blocks_only_is_named(tmp_path):
    reasons = {("A", n): ["throttled: hardware slowdown"] for n in range(10)}
    with pytest.raises(ValueError, match="no block of it counts, all are rejected"):
        read_run(experiment(tmp_path, reasons=reasons).path)


@pytest.mark.parametrize("entry", [3, {}, {"plan": None}, {"plan": {"sides": 3}}])
def test_a_damaged_plan_is_named(tmp_path, entry):
    run = experiment(tmp_path, num_blocks=1)
    file = run.path / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "ab": entry}))
    with pytest.raises(ValueError, match=r"run.json: ab"):
        read_run(run.path)


def test_a_record_after_one_that_was_cut_off_is_kept(tmp_path):
    """A full disk or a kill leaves half a line; what comes next says why a block is rejected, and must not be lost."""
    with (tmp_path / "blocks.jsonl").open("w") as stream:
        stream.write('{"arm": "A", "bl')
    first = BlockRecord(arm="A", block=0, position=0, reasons=("throttled",))
    second = BlockRecord(arm="B", block=0, position=1)
    for record in (first, second):
        add_record(tmp_path, record)
    assert read_records(tmp_path) == {("A", 0): first, ("B", 0): second}


def test_too_few_blocks_and_blocks_to_come(tmp_path):
    few = gated(stored(tmp_path, change=0.5, num_blocks=5))
    assert few.exit_code == 4 and "5 of 5 blocks count; a verdict takes 6" in by_gate(few)["step_ms"].reason
    unfinished = gated(stored(tmp_path, change=0.5, missing=[("B", 9)], finished=False))
    assert (
        unfinished.exit_code == 4 and "1 of 10 blocks are not measured yet" in by_gate(unfinished)["ab_blocks"].reason
    )


def test_a_change_between_equal_sides_is_no_regression(tmp_path):
    moved = stored(tmp_path, is_aa=True, change=0.05)
    report = gated(moved)
    assert report.exit_code == 4 and "same code and configuration" in by_gate(report)["ab_blocks"].reason
    compared = compare_runs([moved])
    assert {c.verdict for c in compared.rows[1].comparisons.values()} == {"exploratory"}
    assert any("same code and configuration" in note for note in compared.notes)
    assert gated(stored(tmp_path, is_aa=True)).exit_code == 0


def test_b_says_what_a_says(tmp_path):
    gates = {"same_output": {"min": "100%"}}
    assert by_gate(gated(stored(tmp_path), gates))["same_output"].status == PASSED
    report = gated(stored(tmp_path, accepted_b=[4, *ACCEPTED[1:-1], 3]), gates)
    assert report.exit_code == 6 and "outputs differ" in by_gate(report)["same_output"].reason


def test_failed_requests_of_a_rejected_block_failed_all_the_same(tmp_path):
    directory = experiment(tmp_path, finished=False)
    frames = directory.frames()
    rows, steps = (t[(t["arm"] == "B") & (t["repeat"] == 4)] for t in (frames.requests, frames.steps))
    rows = rows.assign(finish_reason=["error", *["length"] * (len(rows) - 1)], error=["x", *[""] * (len(rows) - 1)])
    directory.append("B", 4, rows.to_dict("list"), steps.to_dict("list"))
    report = gated(read_run(directory.path))
    assert report.exit_code == 4 and by_gate(report)["failed_requests"].reason == "1 requests failed"
    assert by_gate(report)["step_ms"].comparison.num_pairs == 9
    assert gated(read_run(directory.path), GATES | {"failed_requests": {"max": 1}}).exit_code == 0


def test_sides_that_differ_in_their_prompts_are_not_comparable(tmp_path):
    directory = experiment(tmp_path)
    sides = {label: SideRecord(workload=WorkloadRecord(sha256=label)) for label in "AB"}
    assert directory.record.ab is not None
    directory.put(replace(directory.record, ab=replace(directory.record.ab, sides=sides)))
    directory.finish(None)
    run = read_run(directory.path)
    report = gated(run)
    assert report.exit_code == 5 and "prompts sha256: A and B" in by_gate(report)["step_ms"].reason
    assert run_gates(parse_policy({"gate": GATES}), run, allow_mismatch=True).exit_code == 0


def test_sides_that_are_driven_differently_are_no_pass_and_no_regression(tmp_path):
    run = stored(tmp_path, change=0.6, driven=("in process", "HTTP"))
    report, found = gated(run), compare_runs([run])
    timed = [r for r in report.results if r.kind == "timed"]
    assert {r.status for r in timed} == {NO_DATA} and report.exit_code == 4
    assert all("A was driven in process, B HTTP" in r.reason for r in [*timed, by_gate(report)["ab_blocks"]])
    assert {c.verdict for row in found.rows for c in row.comparisons.values()} == {"exploratory"}
    assert any("no verdict: A was driven in process, B HTTP" in note for note in found.notes)
