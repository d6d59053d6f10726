"""Real rounds of an H200, as both tools recorded them (golden/README.md): their figures as numbers."""

import dataclasses
import gzip
import json
import lzma
import re
from pathlib import Path

import pytest
from profiling.test_nsys_trace import without_source

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.node_map import read_node_maps
from specbench.harness.profiling.record import Subject
from specbench.harness.profiling.redact import redact
from specbench.harness.profiling.rules import PhaseRules

GOLDEN = Path(__file__).parent / "golden"
ARMS, TOOLS = ("eagle", "naive-eagle"), ("nsys", "kineto")
FILES = {"nsys": "trace.sqlite.xz", "kineto": "trace.json.gz"}
RULES = PhaseRules.shipped()

KERNELS = {
    ("advance", None): 1,
    ("verify", None): 25,
    ("accept", None): 5,
    ("draft", 0): 20,
    ("draft", 1): 18,
    ("status", None): 0,  # the copy of the status
    ("host", None): 0,
}
LAUNCHES, SYNCS = {"eagle": 3, "naive-eagle": 1}, {"eagle": 1, "naive-eagle": 0}
GRAPH_LAUNCHES = {
    "eagle": {("advance", None): 1, ("draft", 0): 1, ("draft", 1): 1},
    "naive-eagle": {("advance", None): 1},
}
# ns a round: GPU busy, verify, accept, both drafter passes; idle between verify and draft (median).
TIMES_NS = {
    ("eagle", "nsys"): (183_629.2, 61_824.0, 22_976.0, 54_342.4 + 41_152.0, 21_568.0),
    ("eagle", "kineto"): (183_445.4, 61_561.0, 22_450.0, 54_579.0 + 41_406.0, 15_200.0),
    ("naive-eagle", "nsys"): (182_669.2, 61_510.0, 22_886.0, 53_965.0 + 41_012.0, 2_464.0),
    ("naive-eagle", "kineto"): (182_417.4, 61_643.0, 22_234.0, 53_912.0 + 41_179.0, 2_912.0),
}


def unpacked(arm, tool, folder):
    path = folder / {"nsys": "trace.sqlite", "kineto": "trace.json"}[tool]
    data = (GOLDEN / arm / FILES[tool]).read_bytes()
    path.write_bytes(lzma.decompress(data) if tool == "nsys" else gzip.decompress(data))
    return path


def analysed(arm, path, **changes):
    subject = Subject(**json.loads((GOLDEN / arm / "engine.json").read_text())["subject"])
    maps = read_node_maps(GOLDEN / arm / "nodes.json")
    return analyse_trace(path, rules=RULES, node_maps=maps, subject=dataclasses.replace(subject, **changes))


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    return {(arm, tool): analysed(arm, unpacked(arm, tool, folder)) for arm in ARMS for tool in TOOLS}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("arm", ARMS)
def test_counts_of_a_round(profiles, arm, tool):
    profile = profiles[arm, tool]
    graph, quality = profile.graph, profile.quality
    assert (quality.verdict, quality.attributed_share, quality.num_rounds) == ("good", 1, 5)
    assert (quality.num_ops, quality.num_ops_without_launch, quality.num_ops_without_round) == (5 * 70, 0, 0)
    assert (graph.verdict, graph.reasons) == ("holds", ())
    assert (graph.launches_per_round, graph.graph_launches_per_round) == (LAUNCHES[arm], LAUNCHES[arm])
    assert (graph.graph_share_kernels, graph.graph_share_time) == (1, 1)
    assert {(p.phase, p.draft_step): p.kernels for p in profile.phases} == KERNELS
    launches = {(p.phase, p.draft_step): p.graph_launches for p in profile.phases if p.graph_launches}
    assert launches == GRAPH_LAUNCHES[arm]
    assert profile.syncs_per_round == profile.subject.engine_syncs_per_round == SYNCS[arm]
    assert profile.source.devices == ("NVIDIA H200",)


@pytest.mark.parametrize("tool", TOOLS)
def test_where_the_host_waits(profiles, tool):
    def waits(arm):
        return [(s.phase, s.api, s.kind, s.per_round) for s in profiles[arm, tool].syncs]

    assert waits("eagle") == [("status", "cudaEventSynchronize", "explicit", 1)]
    assert waits("naive-eagle") == [("status", "cudaEventSynchronize", "late", 1)]


@pytest.mark.parametrize(("arm", "tool"), TIMES_NS)
def test_times_of_a_round(profiles, arm, tool):
    profile = profiles[arm, tool]
    phases = {(p.phase, p.draft_step): p.gpu_busy_ns for p in profile.phases}
    draft = phases["draft", 0] + phases["draft", 1]
    found = (profile.gpu_busy_ns, phases["verify", None], phases["accept", None], draft)
    assert (*found, profile.idle.verify_to_draft_idle_ns) == pytest.approx(TIMES_NS[arm, tool], abs=1.5)
    assert sum(phases.values()) == pytest.approx(profile.gpu_busy_ns)


@pytest.mark.parametrize("arm", ARMS)
def test_both_tools_agree(profiles, arm):
    nsys, kineto = (profiles[arm, tool] for tool in TOOLS)
    for name in ("launches_per_round", "graph_launches_per_round", "graph_share_kernels", "verdict"):
        assert getattr(nsys.graph, name) == getattr(kineto.graph, name)
    assert nsys.syncs_per_round == kineto.syncs_per_round
    assert [(s.phase, s.api, s.kind, s.per_round) for s in nsys.syncs] == [
        (s.phase, s.api, s.kind, s.per_round) for s in kineto.syncs
    ]
    shares = [{(p.phase, p.draft_step): p.busy_share for p in profile.phases} for profile in (nsys, kineto)]
    assert shares[0].keys() == shares[1].keys()
    assert max(abs(shares[0][key] - shares[1][key]) for key in shares[0]) < 0.03
    kernels = [{(k.name, k.phase, k.draft_step): k.calls for k in p.kernels if k.is_attention} for p in (nsys, kineto)]
    assert kernels[0] == kernels[1] and len(kernels[0]) == 6


@pytest.mark.parametrize("tool", TOOLS)
def test_without_the_counts_of_the_capture_nothing_is_certified(profiles, tmp_path, tool):
    """The graph of target, acceptance and status cannot be told apart then."""
    path = unpacked("eagle", tool, tmp_path)
    blind = analyse_trace(path, rules=RULES, subject=profiles["eagle", tool].subject)
    assert blind.quality.verdict != "good" and blind.quality.attributed_share < 0.7
    assert blind.graph.verdict != "holds"


@pytest.mark.parametrize("tool", TOOLS)
def test_the_timeline_shows_segments_of_one_phase_as_it_and_others_as_the_hosts(profiles, tool):
    def host(arm):
        return {b.name.removeprefix("specbench:"): b.phase for b in profiles[arm, tool].timeline if b.row == "host"}

    assert host("eagle") == dict(prepare="host", target="host", first="draft", later="draft", status="status")
    assert host("naive-eagle") == dict(prepare="host", round="host", status="status", late_status="status")


def test_what_nsys_says_of_itself_stands_in_the_notes(profiles):
    notes = profiles["eagle", "nsys"].quality.notes
    assert notes == (
        "nsys: Not all CUDA events might have been collected.",
        "nsys: Not all NVTX events might have been collected.",
    )
    assert profiles["eagle", "kineto"].quality.notes == ()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("arm", ARMS)
def test_a_redacted_copy_gives_the_same_figures(profiles, tmp_path, arm, tool):
    path = unpacked(arm, tool, tmp_path)
    copy = tmp_path / "copy"
    redact(path, copy)
    assert without_source(analysed(arm, copy)) == without_source(profiles[arm, tool])


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("arm", ARMS)
def test_they_tell_nothing_of_the_machine(tmp_path, arm, tool):
    data = unpacked(arm, tool, tmp_path).read_bytes()
    assert not re.findall(rb"/(?:home|root|tmp|opt|usr|var|etc|mnt)/|\bGPU-[0-9a-f]|\b[A-Z_]{3,}=\w|kworker", data)


@pytest.mark.parametrize("pattern", ["*eagle/*", "vllm/runner1*", "vllm/runner2*", "sglang/*"])
def test_they_are_small(pattern):
    assert 0 < sum(path.stat().st_size for path in GOLDEN.glob(pattern)) < 1_000_000
