"""Stored runs against the ideal: figures by hand, arms that have none, and a run made by the program itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from roofline_samples import BASE, CHAIN, DRAFTER, FAILED, MACHINE, TARGET, forwards, ideal_arms, roofline_run, rounds
from run_samples import begun, phase

from specbench.harness.roofline.ideal import STATED_SUMS
from specbench.harness.roofline.of_run import INSTRUMENTED, PLAIN, ideal_arms_of
from specbench.harness.spec.arm import ArmSetup
from specbench.harness.store.files import to_object
from specbench.harness.store.inputs_record import SamplingRecord
from specbench.harness.store.roofline_record import ExpertsShape, IdealArm
from specbench.harness.store.run_directory import RunDirectory

# Logits of a row: 1,000 of 2 bytes, written and read once.
ROW_MS = 0.004


def by_label(arms: list[IdealArm]) -> dict[str, IdealArm]:
    return {arm.label: arm for arm in arms}


@pytest.fixture
def arms(tmp_path) -> dict[str, IdealArm]:
    return by_label(ideal_arms(roofline_run(tmp_path), MACHINE))


def test_the_mean_round_by_hand(arms):
    """Ten prompt tokens, one made of them: contexts 10, 11, 12, 13 without drafts; 10, 13, 14, 16 after 3, 1, 2."""
    base, chain = arms[BASE].measured, arms[CHAIN].measured
    assert base is not None and chain is not None
    assert (base.batch, base.context, base.tokens, base.duration_ms) == (2, 11.5, 1, 10)
    assert (chain.batch, chain.context, chain.tokens, chain.duration_ms) == (2, 13.25, 2, 15)
    assert base.rates == () and chain.rates == (0.75, 0.25)
    assert base.first_rows == 0 and chain.first_rows == 3
    assert chain.source == PLAIN
    assert chain.phases_ms == pytest.approx(
        {"verify": 7.5, "accept": 0, "draft_first": 1.5, "draft_next": 0, "other": 6}
    )


def test_the_ideal_by_hand(arms):
    """3 MB of layers, keys and values of two requests, lm_head and its logits, two passes of the drafter."""
    base, chain = arms[BASE], arms[CHAIN]
    assert base.ideal_ms == pytest.approx(
        {"verify": 3 + 2 * 0.02 * 12.5, "accept": 1 + 2 * ROW_MS, "draft_first": 0, "draft_next": 0}
    )
    assert chain.ideal_ms == pytest.approx(
        {
            "verify": 3 + 2 * 0.02 * (13.25 + 3),
            "accept": 1 + 2 * 3 * ROW_MS,
            "draft_first": 0.3 + 2 * 0.004 * (13.25 + 3),
            "draft_next": 0.2 + 2 * 0.004 * (13.25 + 1),
        }
    )
    assert base.ideal_round_ms == pytest.approx(4.508) and base.efficiency == pytest.approx(0.4508)
    assert chain.ideal_round_ms == pytest.approx(5.418) and chain.efficiency == pytest.approx(5.418 / 15)


def test_speed_ups_by_hand(arms):
    base, chain = arms[BASE], arms[CHAIN]
    assert base.ideal_speedup == base.measured_speedup == 1
    assert chain.measured_speedup == pytest.approx(2 * 10 / 15)
    assert chain.ideal_speedup == pytest.approx(2 * 4.508 / 5.418)
    assert chain.measured_speedup / chain.ideal_speedup == pytest.approx(chain.efficiency / base.efficiency)


def test_an_arm_that_failed_stays_and_says_so(arms):
    failed = arms[FAILED]
    assert list(arms) == [BASE, CHAIN, FAILED]
    assert failed.measured is None and failed.ideal_round_ms is None and failed.efficiency is None
    assert failed.ideal_speedup is None and "no decode round" in failed.unknown
    record = to_object(arms[CHAIN])
    assert record["efficiency"] == arms[CHAIN].efficiency and record["measured"]["batch"] == 2


def test_an_older_run_has_measured_figures_and_no_ideal(tmp_path):
    run = roofline_run(tmp_path)
    older = replace(run.record, forwards={})
    arms = by_label(ideal_arms_of(older, run.frames(), MACHINE))
    assert "run.json does not record" in arms[CHAIN].unknown
    assert arms[CHAIN].ideal_ms == {} and arms[CHAIN].ideal_speedup is None and arms[CHAIN].efficiency is None
    assert arms[CHAIN].measured_speedup == pytest.approx(4 / 3)


def test_limits_of_another_dtype_give_no_ideal(tmp_path):
    arms = ideal_arms(roofline_run(tmp_path), replace(MACHINE, dtype="float32"))
    assert arms[0].unknown == "the run is in bfloat16, the machine's limits are of float32"


def test_without_a_baseline_there_is_no_speed_up(tmp_path):
    run = RunDirectory.create(tmp_path, "alone", begun(CHAIN))
    run.append(CHAIN, 0, **rounds([1], k=2, round_ms=15.0, first_rows=3))
    run.put(replace(run.record, forwards={CHAIN: forwards(2, DRAFTER)}))
    (arm,) = ideal_arms(run, MACHINE)
    assert arm.efficiency and arm.ideal_speedup is None and arm.measured_speedup is None


def one_arm(tmp_path, block, recorded, drafter=None, temperature=0.0) -> IdealArm:
    record = begun(CHAIN, sampling=SamplingRecord(temperature=temperature), forwards={CHAIN: recorded})
    run = RunDirectory.create(tmp_path, "one", record)
    run.describe_arm(CHAIN, config=ArmSetup(drafter=drafter))
    run.append(CHAIN, 0, **block)
    (arm,) = ideal_arms(run, MACHINE)
    assert arm.measured is not None
    return arm


def test_rows_that_only_pad_are_left_out_of_the_first_pass(tmp_path):
    """A graph of four requests runs two: twelve rows, of which six count; unpadded, all rows that ran count."""
    block = rounds([1, 0], k=2, round_ms=15.0)
    steps = [{**row, "num_padded_rows": 2 * row["num_rows"], "num_draft_rows": 12} for row in block["steps"]]
    padded = one_arm(tmp_path, {**block, "steps": steps}, forwards(2, DRAFTER), drafter="padded")
    assert padded.measured.first_rows == 3 and padded.measured.batch == 2
    steps = [{**row, "num_draft_rows": 2 * (row["num_accepted"] + 1)} for row in block["steps"]]
    unpadded = one_arm(tmp_path, {**block, "steps": steps}, forwards(2, DRAFTER), drafter="unpadded")
    assert unpadded.measured.first_rows == 1.5
    assert unpadded.ideal_ms["draft_first"] < padded.ideal_ms["draft_first"]


def test_a_tree_runs_its_levels(tmp_path):
    """Eight nodes, three levels of two: first pass four rows a request, then two passes of two."""
    tree = forwards(7, DRAFTER, depth=3, topk=2)
    arm = one_arm(tmp_path, rounds([1], k=7, round_ms=15.0, first_rows=4), tree)
    assert arm.ideal_ms["verify"] == pytest.approx(3 + 2 * 0.02 * (10 + 8))
    assert arm.ideal_ms["draft_first"] == pytest.approx(0.3 + 2 * 0.004 * (10 + 4))
    assert arm.ideal_ms["draft_next"] == pytest.approx(2 * (0.2 + 2 * 0.004 * (10 + 2)))


def test_drafts_that_cost_no_pass(tmp_path):
    """n-gram: some rounds have no draft at all; its rates are over all rounds."""
    block = rounds([2, 1, 0, 0], k=2, round_ms=15.0)
    steps = [row if row["step"] < 3 else {**row, "num_proposed": 0, "draft_depth": 0} for row in block["steps"]]
    arm = one_arm(tmp_path, {**block, "steps": steps}, forwards(2))
    assert arm.ideal_ms["draft_first"] == arm.ideal_ms["draft_next"] == 0
    assert arm.measured.rates == (0.5, 0.25) and arm.measured.tokens == 1.75


def counted(*experts: float) -> list[dict]:
    return [{"name": "engine.experts_per_decode_pass", "value": value} for value in experts]


MIXED = replace(TARGET, layer_bytes=500_000, experts=ExpertsShape(num_layers=5, num_experts=8, expert_bytes=50_000))


def test_a_mixture_reads_the_experts_that_were_counted(tmp_path):
    """0.5 MB of layers, and of each of five layers 3 experts of 50 kB: not all eight, and not the two of a row."""
    arm = one_arm(tmp_path, {**rounds([1], k=2, round_ms=15.0), "counters": counted(3)}, forwards(2, target=MIXED))
    assert arm.measured.experts == 3 and arm.expert_bytes == 750_000
    assert arm.ideal_ms["verify"] == pytest.approx(0.5 + 0.75 + 2 * 0.02 * (10 + 3))
    assert arm.free_rows is None and arm.efficiency == pytest.approx(arm.ideal_round_ms / 15)


def test_a_mixture_whose_reads_were_not_counted_has_no_ideal(tmp_path):
    arm = one_arm(tmp_path, rounds([1], k=2, round_ms=15.0), forwards(2, target=MIXED))
    assert arm.unknown == "the number of experts that its rounds read was not counted" and arm.efficiency is None


def test_fp8_is_read_at_a_byte_a_number_and_multiplied_twice_as_fast(tmp_path):
    slow = replace(MACHINE, matmul_flops_per_s=1e9)  # 2 * 2 requests * 3 rows * 1.5M numbers: 18 ms
    fp8 = replace(TARGET, layer_bytes=1_500_000, fast_params=1_500_000)
    block = rounds([1], k=2, round_ms=15.0)
    run = RunDirectory.create(tmp_path, "fp8", begun(CHAIN, BASE, forwards={CHAIN: forwards(2, target=fp8)}))
    run.append(CHAIN, 0, **block)
    reading, multiplying = (ideal_arms(run, machine)[0] for machine in (MACHINE, slow))
    assert reading.ideal_ms["verify"] == pytest.approx(1.5 + 2 * 0.02 * (10 + 3))
    assert multiplying.ideal_ms["verify"] == pytest.approx(9 + 2 * 0.02 * (10 + 3))
    assert reading.free_rows == pytest.approx(1e18 * 2 / (2 * 1e9))  # as of the same model in 16 bits


def test_sampling_moves_more_than_greedy(tmp_path):
    block = rounds([1], k=2, round_ms=15.0, first_rows=3)
    greedy = one_arm(tmp_path, block, forwards(2, DRAFTER), temperature=0.0)
    sampled = one_arm(tmp_path, block, forwards(2, DRAFTER), temperature=1.0)
    assert sampled.ideal_ms["accept"] - greedy.ideal_ms["accept"] == pytest.approx(6 * 1000 * (12 - 4) / 1e6)


def test_an_instrumented_capture_gives_shares_only(tmp_path):
    """Its rounds take 30 ms, the plain ones 15: phases are the plain round's time by the other's shares."""
    block = rounds([1, 0], k=2, round_ms=15.0, first_rows=3)
    shares = [phase(-n, name, ms, instrumented=True) for n in (1, 2) for name, ms in (("verify", 24), ("gap", 6))]
    arm = one_arm(tmp_path, {**block, "phases": shares}, forwards(2, DRAFTER))
    assert arm.measured.source == INSTRUMENTED
    assert arm.measured.phases_ms["verify"] == pytest.approx(12) and arm.measured.phases_ms["other"] == pytest.approx(3)


def test_sums_over_two_devices_are_part_of_the_ideal(tmp_path, monkeypatch):
    """11 sums of a pass take 1 ms each and 3 ms a kB of a row: three rows of two requests in verification."""
    block = rounds([1], k=2, round_ms=15.0, first_rows=3)
    alone = one_arm(tmp_path / "alone", block, forwards(2, DRAFTER))
    of_two = {"num_ranks": 2, "sum_bytes": 500}
    shared = forwards(2, replace(DRAFTER, num_sums=3, **of_two), target=replace(TARGET, num_sums=11, **of_two))
    record = begun(CHAIN, forwards={CHAIN: shared})
    run = RunDirectory.create(tmp_path, "two", record)
    run.append(CHAIN, 0, **block)
    (unknown,) = ideal_arms(run, MACHINE)
    assert unknown.unknown == "how long 2 of made up take for an all-reduce is not known" and not unknown.ideal_ms
    monkeypatch.setitem(STATED_SUMS, ("made up", 2), (1e-3, 1e6 / 3))
    (arm,) = ideal_arms(run, MACHINE)
    batch = arm.measured.batch
    of_pass = {"verify": 11 * (1 + 1.5 * 3 * batch), "draft_first": 3 * (1 + 1.5 * 3 * batch)}
    for phase_name, ms in {**of_pass, "accept": 0, "draft_next": 3 * (1 + 1.5 * batch)}.items():
        assert arm.ideal_ms[phase_name] - alone.ideal_ms[phase_name] == pytest.approx(ms)
    assert arm.limit == "summing over GPUs"


def test_a_damaged_record_is_refused(tmp_path):
    run = roofline_run(tmp_path)
    file = run.path / "run.json"
    raw = json.loads(file.read_text())
    raw["forwards"][CHAIN].pop("topk")
    file.write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=r"run.json: forwards.*`topk`"):
        RunDirectory.open(run.path)


def test_an_arm_whose_drafts_change_has_no_ideal_and_says_why(tmp_path):
    run = RunDirectory.create(tmp_path, "auto", begun(CHAIN, forwards={CHAIN: forwards(2, DRAFTER)}))
    run.describe_arm(CHAIN, config=ArmSetup(options={"k": "auto"}))
    run.append(CHAIN, 0, **rounds([1, 0], k=2, round_ms=15.0, first_rows=3))
    (arm,) = ideal_arms(run, MACHINE)
    assert arm.unknown == "its number of drafts changes from round to round" and not arm.ideal_ms
    assert arm.measured is not None
