"""Planted regressions are caught, each by the right gate; unchanged code passes."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from compare_samples import Machine, make_run

from specbench.harness.judge.gate import run_gates
from specbench.harness.judge.gate_result import FAILED, INCONCLUSIVE, NO_DATA, NOT_COMPARABLE, PASSED, SKIPPED
from specbench.harness.judge.policy import parse_policy
from specbench.harness.judge.stored import read_run

GATES = {
    "failed_requests": {},
    "graph_share": {"min": "99%"},
    "syncs_per_round": {"max": 1},
    "acceptance_length": {"min_of_reference": "95%"},
    "same_output": {"min": "100%"},
    "step_ms": {"min_effect": "1%"},
    "tokens_per_step": {"min_effect": "1%"},
    "tpot_ms": {"min_effect": "1%"},
}


pytestmark = pytest.mark.usefixtures("quiet_machine")


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    return read_run(make_run(tmp_path_factory.mktemp("base"), Machine(noise_seed=1000)))


def judged(run, against=None, gates=GATES, **head):
    return run_gates(parse_policy({"gate": gates, **head}), run, against)


def failed_gates(report, arm="eagle:k=4"):
    return {r.gate for r in report.with_status(FAILED) if r.arm == arm}


@pytest.mark.parametrize(
    ("machine", "must_fail", "must_pass", "code"),
    [
        (Machine(step_factor=1.03), {"step_ms", "tpot_ms"}, {"tokens_per_step", "syncs_per_round", "graph_share"}, 1),
        (
            Machine(acceptance_loss=0.055),
            {"tokens_per_step", "acceptance_length", "tpot_ms"},
            {"step_ms", "syncs_per_round", "graph_share"},
            1,
        ),
        (Machine(num_syncs=2), {"syncs_per_round"}, {"step_ms", "tokens_per_step", "tpot_ms", "graph_share"}, 1),
        (Machine(graph="none"), {"graph_share"}, {"step_ms", "tokens_per_step", "tpot_ms", "syncs_per_round"}, 1),
    ],
    ids=["step time +3%", "acceptance -5.5%", "one extra sync", "a graph silently off"],
)
def test_planted_regressions(tmp_path, baseline, machine, must_fail, must_pass, code):
    report = judged(read_run(make_run(tmp_path, machine)), baseline)
    assert report.exit_code == code
    assert failed_gates(report) == must_fail
    assert {r.gate for r in report.with_status(PASSED) if r.arm == "eagle:k=4"} >= must_pass


def test_a_smaller_loss_of_acceptance_is_caught_by_pairs_of_prompts(tmp_path, baseline):
    report = judged(read_run(make_run(tmp_path, Machine(acceptance_loss=0.03))), baseline)
    assert "tokens_per_step" in failed_gates(report) and "acceptance_length" not in failed_gates(report)


def test_unchanged_code_passes_20_of_20(tmp_path):
    baseline = read_run(make_run(tmp_path, Machine(noise_seed=1000, num_repeats=1)))
    codes = []
    for seed in range(20):
        run = read_run(make_run(tmp_path, Machine(noise_seed=seed, num_repeats=1)))
        report = judged(run, baseline, inconclusive="fail")
        codes.append((report.exit_code, len(report.with_status(FAILED, INCONCLUSIVE, NO_DATA))))
    assert codes == [(0, 0)] * 20


def test_a_faster_run_passes(tmp_path, baseline):
    report = judged(read_run(make_run(tmp_path, Machine(step_factor=0.95))), baseline)
    assert report.exit_code == 0
    assert {r.comparison.verdict for r in report.results if r.gate == "step_ms"} == {"improved"}


def test_other_hardware_is_refused_but_counted_gates_are_still_checked(tmp_path, baseline):
    other = Machine(num_syncs=2, changes=(("environment.hardware.cpu.model", "Another CPU"),))
    run = read_run(make_run(tmp_path, other))
    report = judged(run, baseline)
    assert report.exit_code == 5
    assert {r.gate for r in report.with_status(NOT_COMPARABLE)} == {"step_ms", "tokens_per_step", "tpot_ms"}
    assert failed_gates(report) == {"syncs_per_round"}
    assert "Another CPU" in report.with_status(NOT_COMPARABLE)[0].reason
    policy = parse_policy({"gate": GATES})
    allowed = run_gates(policy, run, baseline, allow_mismatch=True)
    timed = [r for r in allowed.results if r.gate == "step_ms"]
    assert {r.status for r in timed} == {NO_DATA} and "different hardware" in timed[0].reason


def test_what_other_sampling_says_and_accepts_is_no_fault(tmp_path, baseline):
    run = read_run(make_run(tmp_path, Machine(acceptance_loss=0.3, changes=(("sampling.temperature", 0.8),))))
    gates = {"same_output": {}, "acceptance_length": {}}
    report = judged(run, baseline, gates=gates)
    assert report.exit_code == 5
    assert {r.gate for r in report.with_status(NOT_COMPARABLE)} == set(gates) and not failed_gates(report)
    allowed = run_gates(parse_policy({"gate": gates}), run, baseline, allow_mismatch=True)
    assert failed_gates(allowed) == {"acceptance_length"}


def test_a_run_is_not_its_own_baseline(baseline):
    with pytest.raises(ValueError, match="cannot be its own baseline"):
        judged(read_run(baseline.path), baseline)


def test_too_few_pairs_are_no_pass(tmp_path):
    small = {"num_prompts": 3, "num_repeats": 2}
    runs = [read_run(make_run(tmp_path, Machine(noise_seed=n, **small))) for n in (1, 2)]
    report = judged(*runs, gates={"step_ms": {}})
    assert report.exit_code == 4 and {r.status for r in report.results if r.gate == "step_ms"} == {NO_DATA}
    assert judged(*runs, gates={"step_ms": {}}, missing="warn").exit_code == 0


def test_noise_is_inconclusive_and_the_policy_says_what_that_means(tmp_path):
    noisy = {"round_cv": 0.3, "num_rounds": 4, "num_prompts": 8}
    runs = [read_run(make_run(tmp_path, Machine(noise_seed=n, **noisy))) for n in (1, 2)]
    codes = [judged(*runs, gates={"step_ms": {}}, inconclusive=word).exit_code for word in ("fail", "warn", "pass")]
    assert codes == [3, 0, 0]


def test_six_repeats_are_paired_by_repeat(tmp_path):
    runs = [read_run(make_run(tmp_path, Machine(noise_seed=n, num_repeats=6, num_prompts=6))) for n in (1, 2)]
    report = judged(*runs, gates={"step_ms": {}, "tokens_per_step": {}})
    kinds = {r.gate: r.comparison.metric.pairs for r in report.results if r.comparison}
    assert kinds == {"step_ms": "repeats", "tokens_per_step": "prompts"}
    assert [note for note in report.notes if "noise floor" in note], "repeats of one run share its hour as prompts do"
    assert not [note for note in judged(*runs, gates={"tokens_per_step": {}}).notes if "noise floor" in note]


def test_baseline_arm_of_the_same_run(tmp_path):
    run = read_run(make_run(tmp_path, Machine()))
    report = judged(run, gates={"tpot_ms": {}}, baseline="no-spec")
    (timed,) = [r for r in report.results if r.gate == "tpot_ms"]
    assert timed.arm == "eagle:k=4" and timed.comparison.verdict == "improved" and report.exit_code == 0
    with pytest.raises(ValueError, match="baseline: 'nospec' is not an arm.*no-spec"):
        judged(run, gates={"tpot_ms": {}}, baseline="nospec")
    with pytest.raises(ValueError, match="arms: 'eagle' is not an arm"):
        judged(run, gates={"tpot_ms": {}}, arms=["eagle"])


def test_an_arm_that_vanished_and_a_new_arm(tmp_path, baseline):
    run = read_run(make_run(tmp_path, Machine(), arms=("no-spec", "ngram")))
    report = judged(run, baseline)
    assert report.exit_code == 4
    (gone,) = report.with_status(FAILED)
    assert gone.arm == "eagle:k=4" and "the baseline has this arm" in gone.reason
    assert {r.status for r in report.results if r.arm == "ngram" and r.kind == "timed"} == {SKIPPED}


def test_failed_blocks_and_requests_invalidate(tmp_path, baseline):
    from specbench.harness.store.run_directory import RunDirectory

    path = make_run(tmp_path, Machine())
    directory = RunDirectory.open(path)
    directory.resume([])
    directory.fail_blocks([("eagle:k=4", 3)], "CUDA error <script>")
    directory.finish(None)
    report = judged(read_run(path), baseline)
    assert report.exit_code == 4
    assert any("CUDA error" in r.reason for r in report.with_status(FAILED))


def test_other_outputs_come_before_everything(tmp_path, baseline):
    path = make_run(tmp_path, Machine(num_syncs=3))
    table = pd.read_parquet(path / "requests.parquet")
    table.loc[(table["arm"] == "eagle:k=4") & (table["prompt_id"] == "p3"), "output_sha256"] = "other"
    _write(path / "requests.parquet", table)
    report = judged(read_run(path), baseline)
    assert report.exit_code == 6
    assert [r.reason for r in report.with_status(FAILED) if r.gate == "same_output"] == ["3 of 72 outputs differ"]


def test_outputs_without_a_reference_are_no_pass(tmp_path):
    """A run of one arm has nothing to be the same as."""
    for arm in ("eagle:k=4", "no-spec"):
        report = judged(read_run(make_run(tmp_path, Machine(), arms=(arm,), label=arm[:2])), gates={"same_output": {}})
        (found,) = [r for r in report.results if r.gate == "same_output"]
        assert (found.status, report.exit_code) == (NO_DATA, 4)


@pytest.mark.parametrize(
    ("gates", "missing", "status", "code"),
    [
        ({"acceptance_length": {"min": 2}}, "fail", NO_DATA, 4),
        ({"acceptance_length": {"min": 2}}, "warn", NO_DATA, 0),
        ({"step_ms": {}}, "fail", NO_DATA, 4),
        ({"certificate": {"required": False}}, "fail", SKIPPED, 0),
    ],
)
def test_a_gate_that_judges_no_arm_does_not_pass(tmp_path, gates, missing, status, code):
    """A run that has lost its drafting arms; where one is left, `no-spec` is passed over."""
    alone = judged(read_run(make_run(tmp_path, Machine(), arms=("no-spec",))), gates=gates, missing=missing)
    assert {r.status for r in alone.results if r.gate in gates} == {status} and alone.exit_code == code
    report = judged(read_run(make_run(tmp_path, Machine(), label="both")), gates={"acceptance_length": {"min": 2}})
    found = {r.arm: r.status for r in report.results if r.gate == "acceptance_length"}
    assert found == {"no-spec": SKIPPED, "eagle:k=4": PASSED} and report.exit_code == 0


def test_an_arm_that_was_never_measured_is_no_pass(tmp_path):
    """A run that was stopped: what it measured is fine, and nothing is known of its last arm."""
    path = make_run(tmp_path, Machine())
    record = json.loads((path / "run.json").read_text())
    left = {**record["arms"][-1], "label": "eagle:k=2", "status": "pending"}
    (path / "run.json").write_text(json.dumps({**record, "status": "interrupted", "arms": [*record["arms"], left]}))
    for missing, code in (("fail", 4), ("warn", 0)):
        report = judged(read_run(path), gates={"syncs_per_round": {"max": 1}}, missing=missing)
        (found,) = report.with_status(NO_DATA)
        assert (found.gate, found.arm, report.exit_code) == ("failed_requests", "eagle:k=2", code)
        assert found.reason == "the arm was not measured (status interrupted)"


def test_a_baseline_is_not_judged_by_itself(tmp_path):
    """All other arms are gone: what is compared with itself always passes."""
    gates = {"acceptance_length": {}, "acceptance_by_position": {}, "syncs_per_round": {}, "graph_share": {}}
    run = read_run(make_run(tmp_path, Machine(), arms=("eagle:k=4",)))
    report = judged(run, gates=gates, baseline="eagle:k=4")
    assert report.exit_code == 4 and {r.status for r in report.results if r.gate in gates} == {NO_DATA}
    both = judged(
        read_run(make_run(tmp_path, Machine(), label="both")), gates={"syncs_per_round": {}}, baseline="no-spec"
    )
    found = {r.arm: r.status for r in both.results if r.gate == "syncs_per_round"}
    assert found == {"no-spec": SKIPPED, "eagle:k=4": PASSED} and both.exit_code == 0
    absolute = judged(run, gates={"syncs_per_round": {"max": 1}}, baseline="eagle:k=4")
    assert absolute.exit_code == 0
    alone = read_run(make_run(tmp_path, Machine(), label="alone", arms=("no-spec",)))
    for gate in ("tpot_ms", "accuracy"):
        report = judged(alone, gates={gate: {}}, baseline="no-spec")
        assert report.exit_code == 4 and [r.gate for r in report.with_status(NO_DATA)] == [gate]


def _write(path, table):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pandas(table, schema=pq.read_schema(path), preserve_index=False), path)


def certificate(ok):
    row = {"arm": "eagle:k=4", "temperature": 0.0, "ok": ok, "error": "", "problems": [] if ok else ["regret 3.1"]}
    return {"schema": "specbench.certificate/1", "status": "complete", "certificates": [row]}


@pytest.mark.parametrize(("ok", "code", "status"), [(True, 0, PASSED), (False, 6, FAILED), (None, 4, NO_DATA)])
def test_certificates(tmp_path, ok, code, status):
    path = make_run(tmp_path, Machine())
    if ok is not None:
        (path / "certificate.json").write_text(json.dumps(certificate(ok)))
    report = judged(read_run(path), gates={"certificate": {}})
    assert report.exit_code == code
    assert [r.status for r in report.results if r.gate == "certificate"] == [SKIPPED, status]


def test_limits_of_one_figure_by_direction(tmp_path, baseline):
    faster = read_run(make_run(tmp_path, Machine(step_factor=0.95)))
    report = judged(faster, baseline, gates={"step_ms": {"direction": "higher"}})
    assert report.exit_code == 1


def test_holm_over_all_timed_gates(tmp_path, baseline):
    report = judged(read_run(make_run(tmp_path, Machine(noise_seed=5))), baseline, gates={"step_ms": {}, "tpot_ms": {}})
    found = [r.comparison for r in report.results if r.comparison]
    assert len(found) == 4 and all(c.p_holm >= c.p for c in found) and min(c.p_holm / c.p for c in found) >= 1
    assert max(c.p_holm / c.p for c in found) > 1
