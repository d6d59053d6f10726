"""Two stored runs: their times are judged with the machine's noise from process to process, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from compare_samples import Machine, make_run
from floor_samples import floor, metric, store
from run_samples import begun

from specbench.harness.judge.comparison import compare_runs
from specbench.harness.judge.gate import run_gates
from specbench.harness.judge.gate_result import NO_DATA, PASSED
from specbench.harness.judge.noise import between_runs, block_cvs, fitting_floor, floor_file
from specbench.harness.judge.policy import parse_policy
from specbench.harness.judge.stored import read_run, read_runs
from specbench.harness.stats.paired import Shared, paired, widened
from specbench.harness.stats.verdict import decide
from specbench.harness.store.environment import Cpu, Environment, Hardware
from specbench.harness.store.inputs_record import SamplingRecord
from specbench.harness.store.noise_record import MeasuredModel

TIMES = ("step_ms", "tpot_ms", "tps", "ttft_ms")
NUM_EXPERIMENTS, NUM_PROMPTS, NUM_BLOCKS = 2000, 24, 10


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def pair_of_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    return [make_run(folder, Machine(noise_seed=1)), make_run(folder, Machine(noise_seed=2, step_factor=1.03))]


def compared(paths):
    result = compare_runs(read_runs(paths)[0])
    return {r.arm: r for r in result.rows if r.baseline}["eagle:k=4"].comparisons, result.notes


def simulated(cv: float, share_of_drift: float) -> tuple[np.ndarray, np.ndarray]:
    """Two unchanged runs again and again: log ratios by prompt [experiments, prompts], and the variance that a floor of
    ten blocks on the same machine says their mean has besides."""
    draw = np.random.default_rng([round(1e4 * cv), round(100 * share_of_drift)])
    drift, own = cv * share_of_drift**0.5, cv * (1 - share_of_drift) ** 0.5
    runs = np.hypot(drift, own) * draw.standard_normal((NUM_EXPERIMENTS, 2))
    by_prompt = 0.004 * draw.standard_normal((NUM_EXPERIMENTS, NUM_PROMPTS))
    blocks = drift * draw.standard_normal((NUM_EXPERIMENTS, NUM_BLOCKS, 1))
    blocks = blocks + own * draw.standard_normal((NUM_EXPERIMENTS, NUM_BLOCKS, 2))
    variances = []
    for logs in blocks:
        shared = between_runs([metric("step time", *block_cvs(logs), NUM_BLOCKS)], "step time")
        assert shared is not None and shared.freedom == NUM_BLOCKS - 1
        variances.append(shared.variance)
    return by_prompt + np.diff(runs), np.array(variances)


@pytest.mark.parametrize("share_of_drift", [0.2, 0.8])
@pytest.mark.parametrize("cv", [0.0, 0.005, 0.01, 0.02])
def test_false_verdicts_are_rare_whatever_the_drift_between_runs(cv, share_of_drift):
    ratios, variances = simulated(cv, share_of_drift)
    alone = paired(ratios)
    both = widened(alone, Shared(variance=variances, freedom=NUM_BLOCKS - 1))
    wrong = [np.isin(decide(found, found.p, "lower"), ("improved", "regressed")).mean() for found in (alone, both)]
    assert wrong[1] <= 0.05
    assert ((both.low <= 0) & (0 <= both.high)).mean() >= 0.94
    if cv >= 0.005:
        assert wrong[0] > 0.1, "prompts alone would have said so: the floor is what this test tests"


def test_three_percent_is_still_found_on_a_quiet_machine():
    ratios, variances = simulated(0.002, 0.5)
    found = widened(paired(ratios + np.log(1.03)), Shared(variance=variances, freedom=9))
    assert (decide(found, found.p, "lower") == "regressed").mean() >= 0.99


def test_without_a_floor_times_are_shown_and_not_judged(pair_of_runs):
    found, notes = compared(pair_of_runs)
    assert {found[key].verdict for key in TIMES} == {"exploratory"}
    assert found["step_ms"].change == pytest.approx(0.03, abs=0.004)
    assert found["step_ms"].low is None and found["step_ms"].least_effect is None and found["step_ms"].p is None
    assert found["tokens_per_step"].verdict == "equivalent", "what prompts accept has no drift"
    (note,) = [n for n in notes if "no verdict" in n]
    assert (
        "no stored noise floor" in note
        and "interleaved blocks" in note
        and note.endswith("specbench power --aa 10 -s no-spec")
    )


def test_with_a_floor_the_interval_holds_it(pair_of_runs):
    widths = []
    for cv, verdict in ((0.001, "regressed"), (0.05, "inconclusive")):
        store(cv)
        found, notes = compared(pair_of_runs)
        step = found["step_ms"]
        assert step.verdict == verdict and step.p_signed_rank is None and step.more_pairs is None
        widths.append(step.high - step.low)
        assert any(f"{cv:.2%} from process to process" in n and "eagle:k=4" in n for n in notes)
    assert widths[1] > 0.1 > widths[0]


def test_gates_say_the_same(pair_of_runs):
    runs = [read_run(path) for path in pair_of_runs]
    policy = parse_policy({"gate": {"step_ms": {}, "tokens_per_step": {}}})
    report = run_gates(policy, runs[1], runs[0])
    assert report.exit_code == 4
    by_gate = {r.gate: r for r in report.results if r.arm == "eagle:k=4"}
    assert by_gate["tokens_per_step"].status == PASSED and by_gate["step_ms"].status == NO_DATA
    assert (
        "specbench power --aa 10" in by_gate["step_ms"].reason
        and by_gate["step_ms"].value > by_gate["step_ms"].reference
    )
    store(0.001)
    report = run_gates(policy, runs[1], runs[0])
    assert report.exit_code == 1 and any("noise floor" in note for note in report.notes)
    store(0.05)
    report = run_gates(policy, runs[1], runs[0])
    (step,) = [r for r in report.results if r.gate == "step_ms" and r.arm == "eagle:k=4"]
    assert report.exit_code == 0 and "too noisy from run to run: compare in interleaved blocks" in step.reason


@pytest.mark.parametrize(
    "other",
    [
        {"in_process": True},
        {"max_concurrency": 8},
        {"model": MeasuredModel(name="another", dtype=None, device=None)},
        {"model": MeasuredModel(name="toy-model", dtype="float32", device="cuda")},
    ],
)
def test_a_floor_of_something_else_is_none(pair_of_runs, other):
    store(0.001, **other)
    assert compared(pair_of_runs)[0]["step_ms"].verdict == "exploratory"


def test_the_floor_of_the_same_arm_comes_first():
    run = begun("no-spec", sampling=SamplingRecord(max_concurrency=1))
    floors = [floor(0.01, arm="ngram"), floor(0.02), floor(0.03)]
    assert fitting_floor(floors, run, "eagle:k=4") is floors[1]
    assert fitting_floor(floors, run, "no-spec") is floors[0]
    assert fitting_floor(floors, begun("no-spec", model=None), "no-spec") is None
    few = floor(0.001, num_blocks=2)
    assert fitting_floor([few, *floors], run, "eagle:k=4") is floors[1], "two blocks say little, also of the arm"
    assert fitting_floor([few], run, "eagle:k=4") is few
    metrics = floors[0].metrics
    assert between_runs(metrics, "tokens per step") is None and between_runs(metrics, "nothing") is None


def test_a_damaged_floor_is_said_and_no_reason_to_show_nothing(pair_of_runs):
    path = store(0.001)
    path.write_text("{")
    found, notes = compared(pair_of_runs)
    assert found["step_ms"].verdict == "exploratory" and any("damaged" in note for note in notes)


def test_other_hardware_has_no_common_floor(tmp_path, pair_of_runs):
    store(0.001)
    other = make_run(tmp_path, Machine(changes=(("environment.hardware.cpu.model", "Another"),)))
    found, notes = compared([pair_of_runs[0], other])
    assert found["step_ms"].verdict == "exploratory" and any("different hardware" in note for note in notes)
    assert floor_file(Environment()) != floor_file(Environment(hardware=Hardware(cpu=Cpu(model="Another"))))


def test_arms_of_one_run_need_no_floor(pair_of_runs):
    found, notes = compared(pair_of_runs[:1])
    assert found["tpot_ms"].verdict == "improved" and not any("noise floor" in note for note in notes)


def test_other_prompts_are_no_pairs_of_acceptance(tmp_path, pair_of_runs):
    store(0.001)
    more = {"num_repeats": 6, "num_prompts": 6, "changes": (("workload.sha256", "cd" * 32),)}
    runs = [make_run(tmp_path, Machine(num_repeats=6, num_prompts=6)), make_run(tmp_path, Machine(**more))]
    found, notes = compared(runs)
    assert found["tokens_per_step"].verdict == "exploratory"
    assert any("tokens per step: the prompts are not the same" in note for note in notes)
