"""The sentences that answer reviewers: whether the drafter runs from a graph, why the GPU idles, who waits."""

import dataclasses

import pytest
from profile_samples import eagle_profile, foreign_profile, fused_profile

from specbench.harness.profiling.record import LATE, SyncFigures
from specbench.reports.profile.sentences import (
    certificate,
    drafter_graphs,
    evidence,
    findings,
    verify_to_draft,
    warnings,
)


def with_step(profile, step, **changes):
    phases = [dataclasses.replace(p, **changes) if p.draft_step == step else p for p in profile.phases]
    return dataclasses.replace(profile, phases=tuple(phases))


def with_idle(**changes):
    profile = eagle_profile()
    return dataclasses.replace(profile, idle=dataclasses.replace(profile.idle, **changes))


def test_each_step_of_the_drafter_is_told():
    assert drafter_graphs(eagle_profile()) == [
        "The drafter's step 0 runs without a CUDA graph: 0% of 14 kernels.",
        "The drafter's steps 1 to 3 run from a CUDA graph: 100% of 14 kernels each.",
    ]


def test_a_step_in_part_from_graphs_is_not_all():
    told = drafter_graphs(with_step(eagle_profile(), 2, graph_share_kernels=13.999 / 14))
    assert "The drafter's step 2 runs only in part from CUDA graphs: >99.9% of 14 kernels." in told
    assert told[1].startswith("The drafter's step 1 runs from") and told[3].startswith("The drafter's step 3 runs from")


def test_a_profile_without_drafter_says_nothing_of_it():
    assert drafter_graphs(dataclasses.replace(eagle_profile(), phases=eagle_profile().phases[:3])) == []


def test_why_the_gpu_idles():
    assert verify_to_draft(eagle_profile()) == (
        "The GPU idles 31.2 µs between verify and draft (median of 50 rounds); in the mean 26.0 µs because the host "
        "was late and 5.90 µs for launch latency or a dependency."
    )


def test_overlap_is_no_idle_time():
    overlapped = with_idle(verify_to_draft_span_ns=-4_000.0, verify_to_draft_idle_ns=0.0, num_overlapped=48)
    assert verify_to_draft(overlapped) == (
        "The draft starts 4.00 µs before verify ends: they overlap (in 48 of 50 rounds)."
    )
    none = with_idle(verify_to_draft_span_ns=1_000.0, verify_to_draft_idle_ns=0.0)
    assert verify_to_draft(none) == "The GPU does not idle between verify and draft (1.00 µs apart)."
    assert verify_to_draft(with_idle(verify_to_draft_span_ns=None)) == ""


def test_waits_are_set_beside_the_engines_count():
    assert any(s.endswith("the engine's own count is the same.") for s in findings(eagle_profile()))
    subject = dataclasses.replace(eagle_profile().subject, engine_syncs_per_round=3.0)
    differing = findings(eagle_profile(subject=subject))
    assert any("3.4 times a round" in s and s.endswith("the engine's own count is 3: THEY DIFFER.") for s in differing)
    assert "The host never waits for the GPU within a round; the engine's own count is the same." in findings(
        fused_profile()
    )


def test_waits_for_an_older_round_are_told_apart():
    late = SyncFigures(phase="status", api="cudaEventSynchronize", kind=LATE, per_round=1.0, wait_ns=507_949.0)
    sentence = (
        "The host never waits for the newest round; the engine's own count is the same. It waits 1 time a round for an "
        "older one (507.9 µs), while the newest runs or is queued."
    )
    assert sentence in findings(fused_profile(syncs=(late,)))
    with_both = findings(eagle_profile(syncs=(*eagle_profile().syncs, late)))
    assert any(
        "longest in accept (cudaMemcpyAsync, 531.2 µs" in s and "for an older one (507.9" in s for s in with_both
    )


def test_one_launch_is_singular():
    assert any(s.startswith("The host makes 1 launch a round, 1 of graphs;") for s in findings(fused_profile()))


@pytest.mark.parametrize(
    ("verdict", "words"),
    [("holds", "HOLDS"), ("void", "is VOID"), ("no claim", "NO CLAIM"), ("cannot tell", "CANNOT TELL")],
)
def test_the_verdict_is_a_word(verdict, words):
    graph = dataclasses.replace(eagle_profile().graph, verdict=verdict)
    assert words in certificate(eagle_profile(graph=graph))


def test_evidence_and_its_warning():
    assert evidence(eagle_profile()).startswith("Evidence: good. 99.6% of the GPU operations' time has a phase; 50")
    assert warnings(eagle_profile()) == ()
    assert warnings(foreign_profile())[0].startswith("Refused: only 31% ")
    doubtful = dataclasses.replace(eagle_profile().quality, verdict="doubtful", attributed_share=0.78)
    assert warnings(eagle_profile(quality=doubtful))[0].startswith("Doubtful: 78% ")


def test_a_void_certificate_is_a_warning_with_its_reasons():
    graph = dataclasses.replace(eagle_profile().graph, verdict="void", reasons=("draft step 2: eager", "verify: eager"))
    (text,) = warnings(eagle_profile(graph=graph))
    assert "is VOID" in text and text.endswith(" draft step 2: eager; verify: eager")
