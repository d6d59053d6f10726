"""Floors of acceptance at each position: of a policy and of the baseline, and what is too little to judge."""

from __future__ import annotations

import pytest
import tool_files
from compare_samples import Machine, _begun, make_run
from known_results import results as derived
from run_samples import prefill, request, step
from tool_files import served, vllm_bench

from specbench.harness.experiments.imports.write import import_files
from specbench.harness.judge.gate import run_gates
from specbench.harness.judge.gate_result import FAILED, NO_DATA, PASSED, SKIPPED
from specbench.harness.judge.policy import parse_policy
from specbench.harness.judge.stored import StoredRun, read_run
from specbench.harness.store.run_directory import RunDirectory

ARM = "eagle:k=4"


@pytest.fixture
def judged(tmp_path):
    """Results by position of a run, against an unchanged one where `baseline`, and the exit code."""

    def call(machine: Machine, *, baseline: bool = False, arm: str = ARM, **limits):
        runs = [read_run(make_run(tmp_path, one, label)) for one, label in ((machine, "run"), (Machine(), "base"))]
        policy = parse_policy({"arms": [arm], "gate": {"acceptance_by_position": limits}})
        report = run_gates(policy, runs[0], runs[1] if baseline else None)
        return {r.subject: r for r in report.results if r.gate == "acceptance_by_position"}, report.exit_code

    return call


def positions(results, status: str) -> list[str]:
    return [subject for subject, result in results.items() if result.status == status]


def test_floors_of_a_policy(judged):
    results, code = judged(Machine(), min=["1%", "1%", "99%"])
    assert (
        code == 1 and positions(results, FAILED) == ["position 3"] and "less than 99%" in results["position 3"].reason
    )
    assert positions(results, SKIPPED) == ["position 4"] and len(results) == 4
    results, code = judged(Machine(), min=["1%"] * 5)
    assert code == 1 and positions(results, FAILED) == ["position 5"]
    assert results["position 5"].reason == "no drafts at this position"


def test_the_same_acceptance_passes_and_a_loss_fails(judged):
    results, code = judged(Machine(noise_seed=1), baseline=True)
    assert code == 0 and {result.status for result in results.values()} == {PASSED}
    results, code = judged(Machine(acceptance_loss=0.2), baseline=True, min_of_reference="99%")
    assert code == 1 and positions(results, FAILED)


def test_few_drafts_are_not_compared(judged):
    results, code = judged(Machine(num_prompts=1, num_rounds=6, num_repeats=1), baseline=True)
    assert code == 4 and set(positions(results, NO_DATA)) == set(results)
    assert results["position 1"].reason == "only 6 drafts reached this position"


def test_without_drafts_or_a_baseline_there_are_no_data(judged):
    results, code = judged(Machine(), arm="no-spec")
    assert code == 4 and results[""].reason == "no drafts" and results[""].status == NO_DATA
    results, code = judged(Machine())
    assert code == 4 and {result.reason for result in results.values()} == {"no baseline to compare with"}


def test_floors_are_a_list():
    with pytest.raises(ValueError, match="gate.acceptance_by_position.min: '70%' is not allowed"):
        parse_policy({"gate": {"acceptance_by_position": {"min": "70%"}}})


def run_of_rounds(tmp_path, rounds: list[tuple[int, int]]) -> StoredRun:
    """One request whose rounds are (drafts, accepted)."""
    run = RunDirectory.create(tmp_path, "rounds", _begun(Machine(), (ARM,)))
    steps = [prefill(0, 0, 0, 20)]
    steps += [step(n, 0, 10 * n + 10, 10 * n + 20, k=k, j=j) for n, (k, j) in enumerate(rounds, 1)]
    tokens = 1 + sum(j + 1 for _, j in rounds)
    last_ms = 10 * len(rounds) + 20
    run.append(ARM, 0, requests=[request(0, first_ms=20, last_ms=last_ms, num_output_tokens=tokens)], steps=steps)
    run.finish(derived(run.frames()))
    return read_run(run.path)


def test_only_rounds_with_a_draft_there_reach_a_position(tmp_path):
    """A hundred rounds of one accepted draft say nothing about position 2, where two rounds had a draft."""
    base = run_of_rounds(tmp_path, [(1, 1)] * 100 + [(2, 2)] * 2)
    run = run_of_rounds(tmp_path, [(1, 1)] * 100 + [(2, 2), (2, 1)])
    report = run_gates(parse_policy({"gate": {"acceptance_by_position": {}}}), run, base)
    found = {r.subject: r for r in report.results if r.gate == "acceptance_by_position"}
    assert found["position 1"].status == PASSED and report.exit_code == 0
    assert found["position 2"].status == SKIPPED and found["position 2"].reason.startswith("only 2 drafts reached")
    some = run_of_rounds(tmp_path, [(1, 1)] * 100 + [(2, 2)] * 30 + [(2, 1)] * 30)
    many = run_of_rounds(tmp_path, [(1, 1)] * 100 + [(2, 2)] * 60)
    assert run_gates(parse_policy({"gate": {"acceptance_by_position": {}}}), some, many).exit_code == 1


GATES = {"acceptance_length": {"min": 1.5}, "acceptance_by_position": {"min": ["10%", "10%", "10%"]}}


def imported(tmp_path, **changes) -> StoredRun:
    file = tool_files.write(tmp_path / "eagle.json", vllm_bench(served(num_drafts=3), **changes))
    return read_run(import_files([file], tmp_path / "runs", ["specbench"], meta=["num_speculative_tokens=3"]))


def test_the_sums_of_an_imported_file_are_judged_like_rounds(tmp_path):
    report = run_gates(parse_policy({"gate": GATES}), imported(tmp_path))
    found = {(r.gate, r.subject): r for r in report.results if r.gate in GATES}
    assert report.exit_code == 0 and {r.status for r in found.values()} == {PASSED} and len(found) == 4
    assert found["acceptance_length", ""].value > 2


@pytest.mark.parametrize(
    ("changes", "statuses"),
    [
        ({"spec_decode_num_drafts": None}, {"acceptance_length": NO_DATA, "acceptance_by_position": NO_DATA}),
        (
            {"spec_decode_per_position_acceptance_rates": []},
            {"acceptance_length": PASSED, "acceptance_by_position": NO_DATA},
        ),
    ],
    ids=["without counters", "without positions"],
)
def test_what_an_imported_file_lacks_is_no_data(tmp_path, changes, statuses):
    report = run_gates(parse_policy({"gate": GATES}), imported(tmp_path, **changes))
    assert {r.gate: r.status for r in report.results if r.gate in GATES} == statuses and report.exit_code == 4
