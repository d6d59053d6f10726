"""Floors of acceptance at each position: of a policy and of the baseline, and what is too little to judge."""

from __future__ import annotations

import pytest
from compare_samples import Machine, make_run

from specbench.harness.judge.gate import run_gates
from specbench.harness.judge.gate_result import FAILED, NO_DATA, PASSED, SKIPPED
from specbench.harness.judge.policy import parse_policy
from specbench.harness.judge.stored import read_run

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
