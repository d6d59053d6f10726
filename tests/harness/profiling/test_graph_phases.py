"""One graph holds several phases: which operation belongs to which."""

from __future__ import annotations

import dataclasses

import pytest
from profiling.synthetic import NodeRow, Synth, write_kineto, write_nsys
from profiling.test_analysis import SUBJECT, by_phase

from specbench.harness.engines.traced import NodeMap
from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.rules import PhaseRules

RULES = PhaseRules.shipped()
TARGET = [("advance", 1_000), ("qkv", 20_000), ("paged_attention", 9_000), ("accept", 2_000)]
KERNELS = [*TARGET, ("eagle", 6_000), ("eagle", 5_000)]
PARTS = (("advance", None, 1), ("verify", None, 2), ("accept", None, 1), ("draft", 0, 1), ("draft", 1, 1))
ROUND = NodeMap(segment="round", batch_size=4, parts=PARTS)
BUSY = dict(zip([part[:2] for part in PARTS], [1_000, 29_000, 2_000, 6_000, 5_000], strict=True))
ONE = dataclasses.replace(SUBJECT, num_drafts=2, claimed_parts=dict.fromkeys(("target", "first", "later"), "one"))


def fused(kernels=KERNELS, num_rounds=3, synth=None) -> Synth:
    s = synth or Synth()
    for number in range(num_rounds):
        with s.range(f"specbench:step {number + 1}"), s.range("specbench:round"):
            s.graph(kernels)
        with s.range("specbench:status"):
            s.sync("cudaEventSynchronize")
    return s


def analyse(tmp_path, synth, maps=(ROUND,), subject=ONE):
    return analyse_trace(write_nsys(tmp_path / "t.sqlite", synth), rules=RULES, node_maps=maps, subject=subject)


def busy(profile):
    return {key: row.gpu_busy_ns for key, row in by_phase(profile).items() if row.gpu_busy_ns}


def test_the_whole_round_in_one_graph_has_the_phases_of_any_other(tmp_path):
    profile = analyse(tmp_path, fused())
    assert busy(profile) == BUSY
    rows = by_phase(profile)
    assert rows["verify", None].host_ns is None
    assert [rows[key].graph_launches for key in BUSY] == [1, 0, 0, 0, 0]  # where the replay's first operation is
    assert all(rows[key].graph_share_kernels == 1 for key in BUSY)
    assert (profile.quality.verdict, profile.quality.attributed_share, profile.quality.notes) == ("good", 1, ())
    assert (profile.graph.verdict, profile.graph.launches_per_round) == ("holds", 1)
    assert profile.idle.verify_to_draft_idle_ns == 0 and profile.idle.verify_to_draft_span_ns == 2_000
    assert next(k for k in profile.kernels if k.is_attention).phase == "verify"


def test_kineto_says_the_same(tmp_path):
    nsys = analyse(tmp_path, fused())
    path = write_kineto(tmp_path / "t.json", fused())
    kineto = analyse_trace(path, rules=RULES, node_maps=[ROUND], subject=ONE)
    assert dataclasses.replace(kineto, source=nsys.source) == nsys


def test_segments_of_a_full_plan(tmp_path):
    s = Synth()
    for number in range(2):
        with s.range(f"specbench:step {number}"):
            for segment, part in (("target", KERNELS[:4]), ("first", KERNELS[4:5]), ("later", KERNELS[5:])):
                with s.range(f"specbench:{segment}"):
                    s.graph(part)
    maps = [
        NodeMap(segment="target", batch_size=4, parts=PARTS[:3]),
        NodeMap(segment="first", batch_size=4, parts=PARTS[3:4]),
        NodeMap(segment="later", batch_size=4, parts=PARTS[4:]),
    ]
    profile = analyse(tmp_path, s, maps)
    assert busy(profile) == BUSY
    assert by_phase(profile)["draft", 0].host_ns == 9_000  # alone in its graph


def test_a_replay_of_another_size_is_not_guessed_at(tmp_path):
    s = Synth()
    with s.range("specbench:step 0"), s.range("specbench:round"):
        s.graph(KERNELS[:5])
    profile = analyse(tmp_path, fused(num_rounds=2, synth=s))
    assert busy(profile)["other", None] == pytest.approx(38_000 / 3)
    assert (profile.quality.verdict, profile.graph.verdict) == ("doubtful", "cannot tell")
    (note,) = profile.quality.notes
    assert note == "1 launches of graph 'round': 5 operations, where 6 was counted at capture; left without a phase"


def test_without_counts_nothing_is_concluded(tmp_path):
    profile = analyse(tmp_path, fused(), maps=())
    assert (profile.quality.verdict, profile.phases, profile.graph.verdict) == ("refused", (), "cannot tell")
    assert "graph 'round': no counts from its capture" in profile.quality.notes[0]


def other_split(batch_size):
    return NodeMap(segment="round", batch_size=batch_size, parts=(("verify", None, 5), ("draft", 0, 1)))


@pytest.mark.parametrize(("batch_size", "is_other"), [(1, True), (2, True), (3, False), (4, False)])
def test_captures_of_the_same_size_are_told_apart_by_the_batch(tmp_path, batch_size, is_other):
    subject = dataclasses.replace(ONE, batch_size=batch_size)
    profile = analyse(tmp_path, fused(), [ROUND, other_split(2)], subject)
    assert (busy(profile) != BUSY) is is_other


def test_captures_that_cannot_be_told_apart_are_left_alone(tmp_path):
    profile = analyse(tmp_path, fused(), [ROUND, other_split(2)], subject=None)
    assert profile.quality.verdict == "refused"
    assert "6 operations fit captures that split differently" in profile.quality.notes[0]
    same = [ROUND, dataclasses.replace(ROUND, batch_size=2)]
    assert busy(analyse(tmp_path, fused(), same, subject=None)) == BUSY


def with_nodes(s: Synth, captured: list[int]) -> Synth:
    """`captured`: number of the captured node behind each replayed one, whose clone is a clone."""
    for position, number in enumerate(captured):
        s.nodes += [NodeRow(100 + number, None, 10 + number, s.tid), NodeRow(500 + number, 100 + number, 50, s.tid)]
        s.nodes += [NodeRow(1000 + position, 500 + number, 60, s.tid)]
    return s


def test_the_captured_nodes_decide_where_the_trace_names_them(tmp_path):
    assert analyse(tmp_path, with_nodes(fused(), [0, 1, 2, 3, 4, 5])).quality.notes == ()
    # Two operations of different phases ran in the other order.
    swapped = [*KERNELS[:3], KERNELS[4], KERNELS[3], KERNELS[5]]
    profile = analyse(tmp_path, with_nodes(fused(swapped), [0, 1, 2, 4, 3, 5]))
    assert busy(profile) == BUSY
    assert profile.quality.notes == (
        "3 replays ran in a different order than they were captured; phases follow the capture",
    )


def test_graphs_captured_in_the_trace_are_split_by_the_ranges_of_their_nodes(tmp_path):
    s = Synth()
    captured = []
    for name, count in (("draft", 2), ("step[TARGET_VERIFY bs=1]", 3)):
        with s.range(name):
            for _ in range(count):
                s.work(1_000)
                captured.append(NodeRow(100 + len(captured), None, s.host, s.tid))
                s.work(1_000)
    s.nodes = captured + [NodeRow(1000 + i, row.node, s.host, s.tid) for i, row in enumerate(captured)]
    s.work(50_000)
    for number in range(3):
        with s.range(f"specbench:step {number}"):
            s.graph([("eagle", 1_000)] * 2 + [("gemm", 10_000)] * 3)
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", s), rules=RULES)
    assert busy(profile) == {("draft", None): 2_000, ("verify", None): 30_000}
    assert "3 replays split into phases by the ranges in which their nodes were created" in profile.quality.notes


def test_an_operation_that_began_early_counts_its_overlap_once(tmp_path):
    """Programmatic dependent launch: the drafter's kernel begins under the one before it."""
    s = fused()
    for index in range(4, len(s.ops), 6):
        s.ops[index] = dataclasses.replace(s.ops[index], t0=s.ops[index].t0 - 500)
    profile = analyse(tmp_path, s)
    assert busy(profile) == BUSY and profile.gpu_busy_ns == 43_000
    assert by_phase(profile)["draft", 0].gpu_span_ns == 6_500


def test_a_phase_may_be_said_to_serve_another(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\npattern = "specbench:status"\nphase = "status"\nalso = "accept"\n')
    trace = write_nsys(tmp_path / "t.sqlite", fused())
    profile = analyse_trace(trace, rules=RULES.with_file(path), node_maps=[ROUND])
    assert profile.quality.notes == ("kernels of status also serve accept; their time counts for status",)
