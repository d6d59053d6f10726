"""The lines that answer reviewers: whether the drafter runs from a graph, why the GPU idles, what waits."""

import dataclasses

import pytest
from profile_samples import eagle_profile, foreign_profile, fused_profile

from specbench.harness.profiling.record import LATE, SyncFigures
from specbench.reports.profile.report import facts
from specbench.reports.profile.sentences import certificate, drafter_graphs, evidence, verify_to_draft, warnings
from specbench.reports.profile.tables import sync_table


def with_step(profile, step, **changes):
    phases = [dataclasses.replace(p, **changes) if p.draft_step == step else p for p in profile.phases]
    return dataclasses.replace(profile, phases=tuple(phases))


def with_idle(**changes):
    profile = eagle_profile()
    return dataclasses.replace(profile, idle=dataclasses.replace(profile.idle, **changes))


def test_each_step_of_the_drafter_is_told():
    assert drafter_graphs(eagle_profile()) == [
        "Draft step 0: 0% of 14 kernels from a graph.",
        "Draft steps 1 to 3: 100% of 14 kernels each from a graph.",
    ]


def test_a_step_in_part_from_graphs_is_not_all():
    told = drafter_graphs(with_step(eagle_profile(), 2, graph_share_kernels=13.999 / 14))
    assert "Draft step 2: >99.9% of 14 kernels from a graph." in told
    assert told[1] == "Draft step 1: 100% of 14 kernels from a graph." and told[3].startswith("Draft step 3: 100% of")


def test_a_profile_without_drafter_says_nothing_of_it():
    assert drafter_graphs(dataclasses.replace(eagle_profile(), phases=eagle_profile().phases[:3])) == []


def test_why_the_gpu_idles():
    assert verify_to_draft(eagle_profile()) == [
        "Verify to draft: GPU idle 31.2 µs (median of 50 rounds); mean by cause: host late 26.0 µs, "
        "launch latency or dependency 5.90 µs."
    ]


def test_overlap_is_no_idle_time():
    overlapped = with_idle(verify_to_draft_span_ns=-4_000.0, verify_to_draft_idle_ns=0.0, num_overlapped=48)
    assert verify_to_draft(overlapped) == [
        "Verify to draft: overlap, the draft starts 4.00 µs before verify ends (48 of 50 rounds)."
    ]
    none = with_idle(verify_to_draft_span_ns=1_000.0, verify_to_draft_idle_ns=0.0)
    assert verify_to_draft(none) == ["Verify to draft: not idle, 1.00 µs apart."]
    assert verify_to_draft(with_idle(verify_to_draft_span_ns=None)) == []


def syncs_fact(profile):
    (fact,) = [fact for fact in facts(profile) if fact.name == "synchronisations a round"]
    return fact.value, fact.note


def test_waits_are_shown_with_the_engines_count():
    assert syncs_fact(eagle_profile()) == ("3.4", "engine's own count: 3.4")
    subject = dataclasses.replace(eagle_profile().subject, engine_syncs_per_round=3.0)
    assert syncs_fact(eagle_profile(subject=subject)) == ("3.4", "engine's own count DIFFERS: 3")
    assert syncs_fact(fused_profile()) == ("0", "engine's own count: 0")


def test_waits_for_an_older_round_are_told_apart():
    late = SyncFigures(phase="status", api="cudaEventSynchronize", kind=LATE, per_round=1.0, wait_ns=507_949.0)
    assert syncs_fact(fused_profile(syncs=(late,)))[0] == "0"
    table = sync_table(eagle_profile(syncs=(*eagle_profile().syncs, late)))
    assert table.rows[0] == ("accept", "cudaMemcpyAsync", "pageable-copy", "1", "531.2")
    assert table.rows[1] == ("status", "cudaEventSynchronize", "late", "1", "507.9")
    assert any(note.startswith("late: waits for an older round") for note in table.notes)


@pytest.mark.parametrize(
    ("verdict", "words"),
    [("holds", "HOLDS"), ("void", "is VOID"), ("no claim", "NO CLAIM"), ("cannot tell", "CANNOT TELL")],
)
def test_the_verdict_is_a_word(verdict, words):
    graph = dataclasses.replace(eagle_profile().graph, verdict=verdict)
    assert words in certificate(eagle_profile(graph=graph))


def test_evidence_and_its_warning():
    assert evidence(eagle_profile()).startswith("Evidence: good. 99.6% of GPU time has a phase. Rounds: 50")
    assert warnings(eagle_profile()) == ()
    assert warnings(foreign_profile())[0].startswith("Refused: only 31% ")
    doubtful = dataclasses.replace(eagle_profile().quality, verdict="doubtful", attributed_share=0.78)
    assert warnings(eagle_profile(quality=doubtful))[0].startswith("Doubtful: 78% ")


def test_a_void_certificate_is_a_warning_with_its_reasons():
    graph = dataclasses.replace(eagle_profile().graph, verdict="void", reasons=("draft step 2: eager", "verify: eager"))
    (text,) = warnings(eagle_profile(graph=graph))
    assert "is VOID" in text and text.endswith(" draft step 2: eager; verify: eager")
