"""What a certificate may conclude from traces that do not show everything."""

from __future__ import annotations

import dataclasses
import re

import pytest
from profiling.synthetic import Synth, write_nsys
from profiling.test_analysis import SUBJECT

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.graph_certificate import parse_claims
from specbench.harness.profiling.rules import PhaseRules

BIG = [("eagle", 100_000)]


def certificate(tmp_path, synth: Synth, **claims: str):
    subject = dataclasses.replace(SUBJECT, claimed_parts=claims)
    trace = write_nsys(tmp_path / "t.sqlite", synth)
    profile = analyse_trace(trace, rules=PhaseRules.shipped(), subject=subject)
    assert profile.quality.verdict == "good", "these gaps are too small for the share of the time to tell"
    return profile.graph


def rounds(num: int = 4):
    s = Synth()
    for number in range(num):
        with s.range(f"specbench:step {number}"):
            yield s, number


def drafted(s: Synth) -> None:
    with s.range("specbench:draft_first"):
        s.graph(BIG)


@pytest.mark.parametrize(("mode", "verdict"), [("full", "cannot tell"), ("piecewise", "holds")])
def test_a_kernel_of_no_phase_may_be_of_any_part(tmp_path, mode, verdict):
    for s, number in rounds():
        drafted(s)
        if number == 2:
            s.launch("stray", 100)
    graph = certificate(tmp_path, s, first=mode)
    assert graph.verdict == verdict
    if verdict != "holds":
        assert graph.reasons == ("1 kernels in the rounds have no phase, 1 of them not launched by a graph",)


@pytest.mark.parametrize(("name", "verdict"), [("specbench:step", "holds"), ("step[DECODE bs=1]", "cannot tell")])
def test_a_kernel_between_our_steps_is_of_no_part(tmp_path, name, verdict):
    """SGLang's scheduler launches one to assign cache slots before a step; its own range may not hold all passes."""
    s = Synth()
    for number in range(4):
        s.launch("assign_slots", 100)
        with s.range(f"{name} {number}" if name.startswith("specbench") else name):
            drafted(s)
    assert certificate(tmp_path, s, first="full").verdict == verdict


def test_a_kernel_of_another_thread_between_our_steps_may_be_of_any_part(tmp_path):
    s = Synth()
    for number in range(4):
        s.launch("stray", 100)
        s.calls[-1] = dataclasses.replace(s.calls[-1], tid=s.tid + 1)
        with s.range(f"specbench:step {number}"):
            drafted(s)
    assert certificate(tmp_path, s, first="full").verdict == "cannot tell"


def test_what_another_thread_launches_may_be_of_any_part(tmp_path):
    for s, number in rounds():
        drafted(s)
        if number == 1:
            s.launch("stray", 100)
            s.calls[-1] = dataclasses.replace(s.calls[-1], tid=s.tid + 1)
    assert certificate(tmp_path, s, first="full").verdict == "cannot tell"


def test_what_launched_a_kernel_may_be_unknown(tmp_path):
    for s, number in rounds():
        drafted(s)
        if number == 1:
            s.ops.append(dataclasses.replace(s.ops[-1], t0=s.gpu, t1=s.gpu + 100, cid=9_999, node=None))
    assert certificate(tmp_path, s, first="full").verdict == "cannot tell"


def test_a_launch_that_left_nothing_may_have_been_of_any_part(tmp_path):
    for s, number in rounds():
        with s.range("specbench:draft_first"):
            s.graph(BIG)
            if number == 2:
                s.call("cudaLaunchKernel", 4_000)
    graph = certificate(tmp_path, s, first="full")
    assert (graph.verdict, graph.reasons) == (
        "cannot tell",
        ("1 launch calls in the rounds have no GPU work in the trace",),
    )


def test_an_eager_kernel_of_the_part_voids_the_claim_whatever_else_is_unknown(tmp_path):
    for s, _ in rounds():
        with s.range("specbench:draft_first"):
            s.graph(BIG)
            s.launch("straggler", 100)
        s.launch("stray", 100)
    graph = certificate(tmp_path, s, first="full")
    assert graph.verdict == "void" and "straggler" in graph.reasons[0]


def test_every_pass_of_a_piecewise_drafter_has_graphs(tmp_path):
    for s, _ in rounds():
        drafted(s)
        with s.range("specbench:draft_next"):
            s.graph(BIG)
        with s.range("specbench:draft_next"):
            s.launch("eager pass", 100)
    graph = certificate(tmp_path, s, first="piecewise", later="piecewise")
    assert graph.verdict == "void"
    assert graph.reasons == ("later step 2 (claimed piecewise): no graph launch in 4 of 4 rounds",)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["verify"], "claim: 'verify' is not allowed; allowed: PART=MODE"),
        (["verify=most"], "claim: 'verify=most' is not allowed"),
        (["verify=full", "drafter=full", "verify=piecewise"], "claim: 'verify=piecewise' names verify again"),
    ],
)
def test_claims_that_cannot_be(texts, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_claims(texts)
