"""What a profile's figures say, in plain sentences: the answers to what reviewers ask of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from specbench.harness.profiling.record import LATE, PhaseFigures, Profile, SyncFigures
from specbench.reports.profile.cells import CAUSES, cause_name, count, counted, kernel_name, microseconds, share

SHARES_NOT_SPEED = (
    "Times in a profile are shares, not speed: the profiler slows what it watches. Speed comes from specbench run."
)
_SAME_COUNT = 0.005  # counts a round that differ by less agree
_NO_PHASES = "vLLM's second model runner has no such ranges; its first does (VLLM_USE_V2_MODEL_RUNNER=0)."


def findings(profile: Profile) -> tuple[str, ...]:
    """The sentences of one profile, those without figures left out."""
    said = [
        _subject(profile),
        *drafter_graphs(profile),
        _launches(profile),
        _syncs(profile),
        verify_to_draft(profile),
        _idle(profile),
        *_attention(profile),
    ]
    return tuple(sentence for sentence in said if sentence)


def drafter_graphs(profile: Profile) -> list[str]:
    """Whether each pass of the drafter runs from a CUDA graph; neighbouring passes alike share a sentence."""
    steps = [p for p in profile.phases if p.draft_step is not None and p.kernels]
    steps.sort(key=lambda p: p.draft_step or 0)
    groups = groupby(steps, key=lambda p: (p.phase, count(p.kernels), p.graph_share_kernels))
    return [_drafter_sentence(list(group)) for _, group in groups]


def verify_to_draft(profile: Profile) -> str:
    """How long the GPU idles between verify and draft, and why."""
    idle = profile.idle
    if idle.verify_to_draft_span_ns is None:
        return ""
    if idle.verify_to_draft_span_ns < 0:
        times = f" (in {idle.num_overlapped} of {profile.quality.num_rounds} rounds)" if idle.num_overlapped else ""
        early = microseconds(-idle.verify_to_draft_span_ns)
        return f"The draft starts {early} µs before verify ends: they overlap{times}."
    if not idle.verify_to_draft_idle_ns:
        return (
            f"The GPU does not idle between verify and draft ({microseconds(idle.verify_to_draft_span_ns)} µs apart)."
        )
    causes = {cause: ns for cause, ns in idle.verify_to_draft_by_cause_ns.items() if ns > 0}
    why = ""
    if causes:
        ordered = sorted(causes.items(), key=lambda item: -item[1])
        each = [f"{microseconds(ns)} µs {CAUSES.get(cause, cause_name(cause))}" for cause, ns in ordered]
        why = f"; in the mean {_and(each)}"
    return (
        f"The GPU idles {microseconds(idle.verify_to_draft_idle_ns)} µs between verify and draft "
        f"(median of {profile.quality.num_rounds} rounds){why}."
    )


def evidence(profile: Profile) -> str:
    """How much of the trace stands behind the figures."""
    quality = profile.quality
    left_out = f", {quality.num_rounds_left_out} left out" if quality.num_rounds_left_out else ""
    return (
        f"Evidence: {quality.verdict}. {share(quality.attributed_share)} of the GPU operations' time has a phase; "
        f"{quality.num_rounds} rounds{left_out}; {quality.num_ops} GPU operations, "
        f"{quality.num_ops_without_launch} without the call that launched them, "
        f"{quality.num_ops_without_round} outside rounds."
    )


def warnings(profile: Profile) -> tuple[str, ...]:
    """What must stand above everything else: thin evidence, claims that the trace contradicts."""
    void = [f"{certificate(profile)} {'; '.join(profile.graph.reasons)}"] if profile.graph.verdict == "void" else []
    return tuple(text for text in [_thin_evidence(profile), *void] if text)


def _thin_evidence(profile: Profile) -> str:
    attributed = share(profile.quality.attributed_share)
    if profile.quality.verdict == "refused":
        help_ = "rules for the trace's range names (--rules) may help."
        if not profile.quality.attributed_share:
            help_ = f"no range of its rounds names a phase: {help_} {_NO_PHASES}"
        return (
            f"Refused: only {attributed} of the GPU operations' time could be given to a phase, which is too little to "
            f"conclude from. Figures by phase are left out; {help_}"
        )
    if profile.quality.verdict == "doubtful":
        return (
            f"Doubtful: {attributed} of the GPU operations' time could be given to a phase. Read its tables with that."
        )
    return ""


def certificate(profile: Profile) -> str:
    """The verdict on graphs as a sentence."""
    return {
        "holds": "The certificate HOLDS: what the row claims to run from CUDA graphs did.",
        "void": "The certificate is VOID: the row claims CUDA graphs that the trace does not show.",
        "no claim": "NO CLAIM: nothing says which parts ought to run from CUDA graphs.",
        "cannot tell": "CANNOT TELL: the trace does not show whether parts ran from CUDA graphs.",
    }.get(profile.graph.verdict, f"Verdict: {profile.graph.verdict}.")


def syncs_agree(profile: Profile) -> bool | None:
    """Whether the trace's count of synchronisations is the engine's own; None where the engine has none."""
    own = profile.subject.engine_syncs_per_round if profile.subject else None
    return None if own is None else abs(own - profile.syncs_per_round) < _SAME_COUNT


def _subject(profile: Profile) -> str:
    subject = profile.subject
    if subject is None:
        return ""
    drafts = f", {subject.num_drafts} drafts a round" if subject.num_drafts else ""
    return f"{subject.arm} ran at batch size {subject.batch_size}{drafts}, graph plan {subject.graph_plan}."


def _drafter_sentence(steps: Sequence[PhaseFigures]) -> str:
    first, last = steps[0], steps[-1]
    one = len(steps) == 1
    who = f"step {first.draft_step}" if one else f"steps {first.draft_step} to {last.draft_step}"
    kernels = counted(first.kernels, "kernel", "kernels") + ("" if one else " each")
    value = first.graph_share_kernels
    verb = "runs" if one else "run"
    if value is None or value == 0:
        return f"The drafter's {who} {verb} without a CUDA graph: 0% of {kernels}."
    if value == 1:
        return f"The drafter's {who} {verb} from a CUDA graph: 100% of {kernels}."
    return f"The drafter's {who} {verb} only in part from CUDA graphs: {share(value)} of {kernels}."


def _launches(profile: Profile) -> str:
    graph = profile.graph
    if graph.graph_share_kernels is None:
        return ""
    return (
        f"The host makes {counted(graph.launches_per_round, 'launch', 'launches')} a round, "
        f"{count(graph.graph_launches_per_round)} of graphs; graphs launch "
        f"{share(graph.graph_share_kernels)} of the kernels and {share(graph.graph_share_time)} of their time."
    )


def _syncs(profile: Profile) -> str:
    late = [sync for sync in profile.syncs if sync.kind == LATE]
    newest = [sync for sync in profile.syncs if sync.kind != LATE]
    if not profile.syncs_per_round:
        text = f"The host never waits for {'the newest round' if late else 'the GPU within a round'}"
    else:
        most = max(newest, key=lambda sync: sync.wait_ns, default=None)
        where = f", longest in {most.phase} ({most.api}, {microseconds(most.wait_ns)} µs a round)" if most else ""
        text = f"The host waits for the GPU {counted(profile.syncs_per_round, 'time', 'times')} a round{where}"
    own = profile.subject.engine_syncs_per_round if profile.subject else None
    if own is not None:
        text += f"; the engine's own count is {'the same' if syncs_agree(profile) else f'{count(own)}: THEY DIFFER'}"
    return f"{text}.{_late(late)}"


def _late(syncs: Sequence[SyncFigures]) -> str:
    if not syncs:
        return ""
    times = counted(sum(sync.per_round for sync in syncs), "time", "times")
    wait_us = microseconds(sum(sync.wait_ns for sync in syncs))
    return f" It waits {times} a round for an older one ({wait_us} µs), while the newest runs or is queued."


def _idle(profile: Profile) -> str:
    causes = sorted(profile.idle.by_cause_ns.items(), key=lambda item: -item[1])
    most = f", most of it {CAUSES.get(causes[0][0], cause_name(causes[0][0]))}" if causes and causes[0][1] > 0 else ""
    return (
        f"The GPU is busy {share(profile.gpu_busy_share)} of a round and idles {microseconds(profile.idle.total_ns)} µs"
        f"{most}."
    )


def _attention(profile: Profile) -> list[str]:
    kernels = [
        f"{kernel_name(kernel.name)} ({microseconds(kernel.mean_ns)} µs, {count(kernel.calls)} a round)"
        for kernel in profile.kernels
        if kernel.is_attention and kernel.phase == "verify"
    ]
    return [f"Attention in verify: {_and(kernels)}."] if kernels else []


def _and(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
