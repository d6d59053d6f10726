"""Gates over profiles: launches, graph share of each drafter pass, what the trace counts as synchronisations."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from compare_samples import Machine, make_run
from profile_samples import eagle_profile

from specbench.harness.judge.gate import run_gates
from specbench.harness.judge.gate_result import FAILED, NO_DATA, PASSED
from specbench.harness.judge.policy import parse_policy
from specbench.harness.judge.stored import read_run
from specbench.harness.judge.structural import GraphShareGate
from specbench.harness.profiling.profile_file import write_profile

ARM = "eagle:k=4"


def run_with(tmp_path, profile):
    path = make_run(tmp_path, Machine())
    if profile is not None:
        folder = path / "profile" / "eagle"
        folder.mkdir(parents=True)
        write_profile(replace(profile, subject=replace(profile.subject, arm=ARM)), folder)
    return read_run(path)


def results(run, baseline, gate, **limits):
    report = run_gates(parse_policy({"arms": [ARM], "gate": {gate: limits}}), run, baseline)
    return {r.subject: r for r in report.results if r.gate == gate}, report.exit_code


def with_graph(profile, **changes):
    return replace(profile, graph=replace(profile.graph, **changes))


def eager_second_pass(profile):
    phases = tuple(replace(p, graph_share_kernels=0.0) if p.draft_step == 1 else p for p in profile.phases)
    return replace(profile, phases=phases)


def graphed(profile):
    phases = tuple(replace(p, graph_share_kernels=1.0) if p.draft_step is not None else p for p in profile.phases)
    return with_graph(replace(profile, phases=phases), verdict="holds", reasons=())


def test_launches_are_compared_with_the_baseline(tmp_path):
    profile = eagle_profile()
    launches = profile.graph.launches_per_round
    baseline = run_with(tmp_path, profile)
    same, code = results(run_with(tmp_path, profile), baseline, "launches_per_round")
    assert same["trace"].status == PASSED and code == 0
    more, code = results(
        run_with(tmp_path, with_graph(profile, launches_per_round=launches + 1)), baseline, "launches_per_round"
    )
    assert more["trace"].status == FAILED and code == 1
    allowed, _ = results(
        run_with(tmp_path, with_graph(profile, launches_per_round=launches + 1)),
        baseline,
        "launches_per_round",
        max_increase=1,
    )
    assert allowed["trace"].status == PASSED


def test_without_a_profile_launches_have_no_data(tmp_path):
    found, code = results(run_with(tmp_path, None), None, "launches_per_round", max=3)
    assert found["trace"].status == NO_DATA and code == 4 and "--certify-graphs" in found["trace"].reason


def test_every_drafter_pass_has_a_floor_of_its_own(tmp_path):
    whole = graphed(eagle_profile())
    found, code = results(run_with(tmp_path, whole), None, "graph_share", min="99%")
    assert code == 0 and {r.status for r in found.values()} == {PASSED} and "drafter pass 2" in found
    found, code = results(run_with(tmp_path, eager_second_pass(whole)), None, "graph_share", min="99%")
    assert code == 1 and [s for s, r in found.items() if r.status == FAILED] == ["drafter pass 2"]


def test_a_certificate_that_cannot_tell_is_no_evidence(tmp_path):
    unclear = with_graph(graphed(eagle_profile()), verdict="cannot tell", reasons=("a kernel lies in no phase",))
    found, code = results(run_with(tmp_path, unclear), None, "graph_share", min="99%")
    assert found["certificate"].status == NO_DATA and code == 4


def test_a_void_graph_certificate_fails(tmp_path):
    void = with_graph(graphed(eagle_profile()), verdict="void", reasons=("verify ran eagerly",))
    found, code = results(run_with(tmp_path, void), None, "graph_share", min="99%")
    assert code == 1 and found["certificate"].reason == "verify ran eagerly"


def test_the_trace_sees_synchronisations_that_the_engine_does_not(tmp_path):
    profile = replace(eagle_profile(), syncs_per_round=1.0)
    baseline = run_with(tmp_path, profile)
    found, _ = results(run_with(tmp_path, replace(profile, syncs_per_round=2.0)), baseline, "syncs_per_round")
    assert found[""].status == PASSED and found["trace"].status == FAILED


def test_without_a_baseline_relative_limits_have_no_data(tmp_path):
    found, code = results(run_with(tmp_path, None), None, "syncs_per_round")
    assert found[""].status == NO_DATA and found[""].reason == "no baseline to compare with" and code == 4


def test_a_damaged_profile_is_named(tmp_path):
    run = run_with(tmp_path, eagle_profile())
    (file,) = run.path.glob("profile/*/profile.json")
    file.write_text("{")
    with pytest.raises(ValueError, match="profile.json: damaged"):
        results(run, None, "syncs_per_round")


def test_reference_acceptance_by_arm(tmp_path):
    run = run_with(tmp_path, None)
    found, code = results(run, None, "acceptance_length", reference={ARM: 9.0})
    assert code == 1 and "of 9.000" in found[""].reason
    found, code = results(run, None, "acceptance_length", reference={ARM: 3.0}, min=1.5)
    assert code == 0 and found[""].status == PASSED
    found, code = results(run, None, "acceptance_length", reference={"egle:k=4": 3.0})
    assert code == 4 and found[""].status == NO_DATA and "only for egle:k=4" in found[""].reason
    found, code = results(run, None, "acceptance_length", min=8)
    assert code == 1 and "less than 8" in found[""].reason


@pytest.mark.parametrize(
    ("block", "share"),
    [
        ({"decode_cuda_graph": 45.0, "decode_none": 5.0, "prefill_none": 9.0}, 0.9),
        ({"decode_none": 5.0}, 0.0),
        ({"prefill_cuda_graph": 5.0}, None),
    ],
)
def test_a_servers_own_counter_of_graphs_counts_where_it_does_not_tell_its_rounds(tmp_path, block, share):
    counters = {f"counters.engine.cuda_graph_passes/{mode}": count for mode, count in block.items()}
    run = SimpleNamespace(path=tmp_path, blocks=lambda arm: {(arm, 0): counters})
    assert GraphShareGate(min=0.5).figures(SimpleNamespace(run=run, arm="a")) == {"decode rounds": share}
