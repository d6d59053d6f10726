"""Rounds of vLLM 0.26 (second model runner) and SGLang 0.5.16 on an H200 under our ranges: each drafter pass is a row,
which the attention kernels in it confirm, and both tools count the same."""

import pytest
from golden_traces import analysed

from specbench.reports.profile.sentences import findings, warnings

CLAIMS = {"verify": "full", "drafter": "full"}
TRACES = {
    "vllm": ["vllm/runner2-ranges.sqlite.xz", "vllm/runner2-ranges.json.gz"],
    "sglang": ["sglang/chain.sqlite.xz", "sglang/chain.json.gz"],
}


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranges")
    return {name: [analysed(trace, folder, **CLAIMS) for trace in traces] for name, traces in TRACES.items()}


def launches(profile):
    return {(p.phase, p.draft_step): (p.eager_launches, p.graph_launches) for p in profile.phases}


@pytest.mark.parametrize("engine", TRACES)
def test_every_operation_but_a_copy_between_rounds_has_a_phase_and_the_tools_agree(profiles, engine):
    nsys, torch = profiles[engine]
    for profile in (nsys, torch):
        assert (profile.quality.verdict, profile.quality.num_rounds) == ("good", 20)
        assert profile.quality.attributed_share > 0.998
        assert not [w for w in warnings(profile) if "do not add up" in w]
    assert nsys.graph.graph_launches_per_round == torch.graph.graph_launches_per_round
    assert nsys.syncs_per_round == torch.syncs_per_round == 1
    # vLLM copies a row of its block table in every 16th token's step: 4 and 3 times in 20 rounds
    assert nsys.graph.launches_per_round == pytest.approx(torch.graph.launches_per_round, abs=0.06)
    busy = [{(p.phase, p.draft_step): p.gpu_busy_ns for p in profile.phases} for profile in (nsys, torch)]
    assert busy[0].keys() == busy[1].keys()
    if engine == "vllm":  # several processes shared the GPU while SGLang was traced: its times say nothing
        shares = [{key: ns / sum(times.values()) for key, ns in times.items()} for times in busy]
        assert shares[0] == {key: pytest.approx(share, abs=0.002) for key, share in shares[1].items()}


def test_each_pass_of_vllm_is_one_graph(profiles):
    for profile in profiles["vllm"]:
        assert profile.graph.verdict == "holds"
        found = launches(profile)
        assert {found["draft", n] for n in range(4)} == {found["verify", None]} == {(0, 1)}
        assert found["accept", None] == (14, 0) and found["draft", None] == (16, 0)
        assert findings(profile)[0].endswith("4 passes with ranges of their own; attention kernels in each: 2.")


def test_a_chain_of_sglang_drafts_before_it_verifies(profiles):
    """`draft_rest`, all passes after the first, opens the step; the first follows verification. K = 4."""
    for profile in profiles["sglang"]:
        found = launches(profile)
        assert found["verify", None] == found["draft", 0] == found["draft", 1] == (0, 1)
        assert found["draft", None] == (36, 0), "copies and indices that are launched before the graphs"
        assert profile.graph.verdict == "holds" and profile.idle.num_overlapped == 0
        calls = {(k.phase, k.name.partition("(")[0]): k.calls for k in profile.kernels if k.is_attention}
        assert calls["verify", "_fwd_kernel"] == 30 and calls["draft", "_fwd_grouped_kernel_stage1"] == 3


def test_a_tree_of_sglang_has_one_pass_behind_its_first(tmp_path):
    profile = analysed("sglang/tree.sqlite.xz", tmp_path, **CLAIMS)
    calls = {(k.phase, k.name.partition("(")[0]): k.calls for k in profile.kernels if k.is_attention}
    assert calls["verify", "_fwd_kernel"] == 30 and calls["draft", "_fwd_grouped_kernel_stage1"] == 1
    assert (profile.graph.launches_per_round, profile.syncs_per_round) == (91, 1)
    assert profile.graph.verdict == "holds"
    assert launches(profile)["draft", 0] == launches(profile)["draft", 1] == (0, 1)
