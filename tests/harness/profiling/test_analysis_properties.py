"""What holds of every trace, over random ones."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from profiling.synthetic import PAGEABLE, Synth, write_kineto, write_nsys

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.rules import PhaseRules

RULES = PhaseRules.shipped()
PHASES = ("advance", "verify", "accept", "draft_first", "draft_next", "status", "next_tokens")

ACTION = st.tuples(st.sampled_from(["launch", "graph", "copy", "read", "sync", "idle", "overlap"]), st.integers(1, 50))
PHASE = st.tuples(st.sampled_from([*PHASES, None]), st.lists(ACTION, min_size=1, max_size=4))
ROUNDS = st.lists(st.lists(PHASE, min_size=1, max_size=5), min_size=2, max_size=5)
# No shrinking: one example takes long enough.
SEARCH = (Phase.explicit, Phase.reuse, Phase.generate)
FEW = settings(max_examples=15, phases=SEARCH)


def built(rounds, pid: int = 4242) -> Synth:
    s = Synth(pid=pid, tid=pid)
    for number, phases in enumerate(rounds):
        with s.range(f"specbench:step {number}"):
            s.launch("always", 700)
            for name, actions in phases:
                if name is None:
                    _act(s, actions)
                else:
                    with s.range(f"specbench:{name}"):
                        _act(s, actions)
    return s


def _act(s: Synth, actions) -> None:
    for action, size in actions:
        if action == "launch":
            s.launch(f"kernel_{size % 5}", size * 100)
        elif action == "graph":
            s.graph([(f"node_{i % 3}", size * 50) for i in range(size % 6 + 1)])
        elif action == "copy":
            s.copy()
        elif action == "read":
            s.copy(host_memory=PAGEABLE)
            s.sync()
        elif action == "sync":
            s.sync("cudaDeviceSynchronize")
        elif action == "idle":
            s.work(size * 1_000)
        else:  # the next operation begins before this one ends, on another stream
            op = s.launch("long", size * 500)
            s.ops[-1] = dataclasses.replace(op, stream=13)
            s.gpu = op.t0 + size * 100


def analyse(write, *synths, **options):
    with tempfile.TemporaryDirectory() as folder:
        return analyse_trace(write(Path(folder) / "trace", *synths, **options), rules=RULES)


@given(ROUNDS)
@FEW
def test_times_are_possible(rounds):
    s = built(rounds)
    profile = analyse(write_nsys, s)
    for row in profile.phases:
        assert 0 <= row.gpu_busy_ns <= row.gpu_span_ns + 1e-6
        assert row.graph_kernels <= row.kernels
        assert row.eager_launches + row.graph_kernels <= row.kernels + 1e-9
    if profile.phases:
        assert sum(row.gpu_busy_ns for row in profile.phases) == pytest.approx(profile.gpu_busy_ns)
        assert sum(row.busy_share for row in profile.phases) == pytest.approx(1)
        assert sum(row.graph_launches for row in profile.phases) == pytest.approx(
            profile.graph.graph_launches_per_round
        )
    assert profile.gpu_busy_ns <= sum(op.t1 - op.t0 for op in s.ops) / profile.quality.num_rounds + 1e-6
    assert 0 <= profile.gpu_busy_share <= 1 and 0 <= profile.quality.attributed_share <= 1
    assert sum(profile.idle.by_cause_ns.values()) == pytest.approx(profile.idle.total_ns)
    assert sum(k.share for k in profile.kernels) == pytest.approx(1)
    assert profile.quality.num_rounds + profile.quality.num_rounds_left_out == len(rounds)


@given(ROUNDS, st.integers(0, 9))
@FEW
def test_the_order_of_rows_changes_nothing(rounds, seed):
    s = built(rounds)
    plain = analyse(write_nsys, s)
    assert dataclasses.replace(analyse(write_nsys, s, shuffle=seed), source=plain.source) == plain
    assert dataclasses.replace(analyse(write_kineto, s, shuffle=seed), source=plain.source) == plain


@given(ROUNDS, ROUNDS)
@FEW
def test_another_process_changes_nothing(rounds, others):
    s, other = built(rounds), built(others, pid=99)
    other.ranges = [dataclasses.replace(r, name=f"other:{r.name}") for r in other.ranges]
    plain = analyse(write_nsys, s)
    assert dataclasses.replace(analyse(write_nsys, s, other), source=plain.source) == plain


@given(ROUNDS, st.sampled_from([-(10**12), -1_100_000, 10**15]))
@FEW
def test_the_clock_of_the_trace_does_not_matter(rounds, shift):
    """nsys counts from the start of the capture, and has negative times."""
    s = built(rounds)
    moved = dataclasses.replace(s)
    for name in ("ranges", "calls", "ops"):
        setattr(moved, name, [dataclasses.replace(r, t0=r.t0 + shift, t1=r.t1 + shift) for r in getattr(s, name)])
    plain = analyse(write_nsys, s)
    assert dataclasses.replace(analyse(write_nsys, moved), source=plain.source) == plain
