"""One-line findings next to the tables of a profile: drafter passes and graphs, verify to draft, verdict, evidence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from specbench.harness.profiling.record import MAX_SLOW_DOWN, HostPhase, PhaseFigures, Profile
from specbench.reports.cells import share
from specbench.reports.profile.cells import cause_name, count, duration, steps_name

SHARES_NOT_SPEED = "Times in a profile are shares, not speed: profiling slows a run. For speed, use specbench run."
_CERTIFICATES = {
    "holds": "The certificate HOLDS: all parts that are claimed to run from CUDA graphs did so.",
    "void": "The certificate is VOID: CUDA graphs are claimed that the trace does not show.",
    "no claim": "NO CLAIM: nothing says which parts should run from CUDA graphs (for an import: --claim).",
    "cannot tell": "CANNOT TELL: the trace does not show whether parts ran from CUDA graphs.",
}
_NO_PHASES = (
    " No range in its rounds names a phase. vLLM's V2 model runner has no such ranges; V1 has them "
    "(VLLM_USE_V2_MODEL_RUNNER=0)."
)


def findings(profile: Profile) -> tuple[str, ...]:
    return (*drafter_passes(profile), *drafter_graphs(profile), *verify_to_draft(profile))


def drafter_passes(profile: Profile) -> list[str]:
    """The drafter passes that have their own ranges, with K and the attention kernels in each."""
    passes = _passes(profile)
    if not passes:
        return []
    calls = ", ".join(dict.fromkeys(count(p.attention) for p in passes))
    what = "operators" if profile.is_host_only else "kernels"
    num_drafts = _num_drafts(profile)
    beside = f", K = {num_drafts}" if num_drafts else ""
    return [f"Drafter: {len(passes)} passes with ranges of their own{beside}; attention {what} in each: {calls}."]


def _passes(profile: Profile) -> list[PhaseFigures | HostPhase]:
    rows: list[PhaseFigures | HostPhase] = [*profile.phases, *profile.host_phases]
    return [p for p in rows if p.phase == "draft" and p.draft_step is not None and p.ranges]


def _num_drafts(profile: Profile) -> int | None:
    """The number of passes that a chain of the engine must have; None if unknown."""
    subject = profile.subject
    is_chain = subject is not None and subject.config.get("engine") == "vllm" and subject.strategy == "eagle"
    return subject.num_drafts if is_chain and subject is not None else None


def _wrong_passes(profile: Profile) -> list[str]:
    """What is inconsistent about the passes. If anything is, no conclusion about single passes is possible."""
    passes, num_drafts = _passes(profile), _num_drafts(profile)
    if not passes:
        return []
    problems = []
    merged = any(p.attention and p.attention > 1.5 * (passes[0].attention or 0) for p in passes[1:])
    if num_drafts is not None and len(passes) != num_drafts and not merged:
        problems.append(f"{len(passes)} passes have ranges, and K is {num_drafts}")
    problems += [f"pass {p.draft_step} has {count(p.ranges)} ranges a round" for p in passes if p.ranges != 1]
    problems += [f"pass {p.draft_step} has no attention kernel" for p in passes if p.attention == 0]
    return [f"The passes do not add up: {'; '.join(problems)}."] if problems else []


def drafter_graphs(profile: Profile) -> list[str]:
    """The share of kernels from a CUDA graph in each pass of the drafter; equal neighbouring passes share a line."""
    steps = [p for p in profile.phases if p.draft_step is not None and p.kernels]
    steps.sort(key=lambda p: p.draft_step or 0)
    groups = groupby(steps, key=lambda p: (p.phase, count(p.kernels), p.graph_share_kernels))
    return [_drafter_line(list(group)) for _, group in groups]


def verify_to_draft(profile: Profile) -> list[str]:
    """How long the GPU idles between verify and draft, by cause."""
    idle, num_rounds = profile.idle, profile.quality.num_rounds
    if idle.verify_to_draft_span_ns is None:
        return []
    if idle.verify_to_draft_span_ns < 0:
        early = duration(-idle.verify_to_draft_span_ns)
        rounds = f" ({idle.num_overlapped} of {num_rounds} rounds)" if idle.num_overlapped else ""
        return [f"Verify to draft: overlap, the draft starts {early} before verify ends{rounds}."]
    if not idle.verify_to_draft_idle_ns:
        return [f"Verify to draft: not idle, {duration(idle.verify_to_draft_span_ns)} apart."]
    causes = sorted(idle.verify_to_draft_by_cause_ns.items(), key=lambda item: -item[1])
    by_cause = ", ".join(f"{cause_name(cause)} {duration(ns)}" for cause, ns in causes if ns > 0)
    median = f"Verify to draft: GPU idle {duration(idle.verify_to_draft_idle_ns)} (median of {num_rounds} rounds)"
    return [f"{median}; mean by cause: {by_cause}." if by_cause else f"{median}."]


def evidence(profile: Profile) -> str:
    """How much of the trace supports the figures."""
    quality = profile.quality
    if profile.is_host_only:
        return f"Evidence: {quality.verdict}. {share(quality.attributed_share)} of the rounds' time is in a range."
    return (
        f"Evidence: {quality.verdict}. {share(quality.attributed_share)} of GPU time has a phase. "
        f"Rounds: {quality.num_rounds}, {quality.num_rounds_left_out} left out. GPU operations: {quality.num_ops}, "
        f"{quality.num_ops_without_launch} without a launching call, {quality.num_ops_without_round} outside rounds."
    )


def warnings(profile: Profile) -> tuple[str, ...]:
    """Warnings about weak evidence and about claims that the trace contradicts."""
    quality = profile.quality
    attributed = f"{share(quality.attributed_share)} of GPU time has a phase"
    texts = []
    if quality.verdict == "refused":
        more = "" if quality.attributed_share else _NO_PHASES
        texts.append(f"Refused: only {attributed}. Figures by phase are left out; name the ranges with --rules.{more}")
    if quality.verdict == "doubtful":
        texts.append(f"Doubtful: {attributed}.")
    texts += _wrong_passes(profile)
    if profile.is_slowed and profile.slow_down is not None:
        texts.append(
            f"The profiler slowed the rounds {profile.slow_down.ratio:.2f}x, more than {MAX_SLOW_DOWN}x: idle times "
            "and host times would be mostly profiler overhead and are left out. Counts are valid."
        )
    if profile.graph.verdict == "void":
        texts.append(f"{certificate(profile)} {'; '.join(profile.graph.reasons)}")
    return tuple(texts)


def certificate(profile: Profile) -> str:
    """The verdict on graphs."""
    return _CERTIFICATES.get(profile.graph.verdict, f"Verdict: {profile.graph.verdict}.")


def _drafter_line(steps: Sequence[PhaseFigures]) -> str:
    name = steps_name("Draft", [step.draft_step for step in steps if step.draft_step is not None])
    each = " each" if len(steps) > 1 else ""
    return (
        f"{name}: {share(steps[0].graph_share_kernels or 0.0)} of {count(steps[0].kernels)} kernels{each} from a graph."
    )
