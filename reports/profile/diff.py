"""Two profiles compared: headline figures, phases, synchronisations and kernels with their differences, as data.

Intervals of changes are over the rounds of both profiles: how much of a difference may come from which were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from specbench.harness.profiling.record import LATE, PHASES, KernelFigures, PhaseFigures, Profile
from specbench.harness.stats.spread import NUM_RESAMPLES

SCHEMA = "specbench.profile-diff/1"
LATE_WAIT = "late wait of the host a round"
_MIN_ROUNDS = 5  # a side
_SEED = 34_880  # fixed: the same profiles always give the same report


@dataclass(frozen=True, kw_only=True, slots=True)
class Delta:
    """One figure on both sides; None if a side does not have it. `interval`: of the change, over the rounds."""

    name: str
    unit: str
    a: float | None
    b: float | None
    interval: tuple[float, float] | None = None

    @property
    def change(self) -> float | None:
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseDelta:
    """A phase (of one drafter pass) on both sides."""

    phase: str
    draft_step: int | None
    a: PhaseFigures | None
    b: PhaseFigures | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncDelta:
    phase: str
    api: str
    kind: str
    site: str
    per_round: Delta
    wait: Delta


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelDelta:
    """A kernel summed over the phases it runs in. `status`: only in A, only in B, or both."""

    name: str
    status: str
    calls: Delta
    total: Delta


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileDiff:
    warnings: tuple[str, ...]
    headline: tuple[Delta, ...]
    phases: tuple[PhaseDelta, ...]
    syncs: tuple[SyncDelta, ...]
    kernels: tuple[KernelDelta, ...]  # the largest change of total time first
    schema: str = SCHEMA


def _of_rounds(name: str) -> Callable[[Profile], Sequence[float]]:
    return lambda profile: () if profile.rounds is None else getattr(profile.rounds, name)


_BY_ROUND: dict[str, Callable[[Profile], Sequence[float]]] = {
    "launches a round": _of_rounds("launches"),
    "graph launches a round": _of_rounds("graph_launches"),
    "synchronisations a round": _of_rounds("syncs"),
    "wait of the host a round": _of_rounds("wait_ns"),
    LATE_WAIT: _of_rounds("late_wait_ns"),
    "verify to draft, idle": lambda profile: profile.idle.verify_to_draft_by_round_ns,
    "GPU idle a round": lambda profile: profile.idle.by_round_ns,
    "GPU busy a round": _of_rounds("gpu_busy_ns"),
    "round under the profiler": _of_rounds("round_ns"),
}
# The headline shows their medians, of all others means: the interval of another statistic need not contain the change.
_MEDIANS = ("verify to draft, idle", "round under the profiler")
INTERVAL_NOTE = (
    "In brackets: 95% bootstrap interval of the change over the rounds of both traces. Each side is one process, "
    "so differences between processes are not covered. A change and its interval use the same statistic of the rounds: "
    f"the median for {' and '.join(map(repr, _MEDIANS))}, the mean for all others."
)


def diff_profiles(a: Profile, b: Profile) -> ProfileDiff:
    """Compares all figures; those by phase only if neither side's evidence is refused."""
    refused = "refused" in (a.quality.verdict, b.quality.verdict)
    return ProfileDiff(
        warnings=tuple(_warnings(a, b)),
        headline=tuple(_headline(a, b, refused)),
        phases=() if refused else tuple(_phases(a, b)),
        syncs=() if refused else tuple(_syncs(a, b)),
        kernels=tuple(_kernels(a, b)),
    )


def _warnings(a: Profile, b: Profile) -> Iterable[str]:
    """Reasons why a difference may not come from the intended change."""
    compared: list[tuple[str, object, object]] = [
        ("GPUs", ", ".join(a.source.devices), ", ".join(b.source.devices)),
        ("tools", a.source.kind, b.source.kind),
        ("versions of the tool", a.source.tool, b.source.tool),
    ]
    if a.subject and b.subject:
        compared.append(("numbers of drafts", a.subject.num_drafts, b.subject.num_drafts))
    if a.batch_size and b.batch_size:
        compared.append(("batch sizes", a.batch_size, b.batch_size))
    else:
        yield "The batch size of a side is not known: the trace does not record it."
    for name, left, right in compared:
        if left != right and not (name == "versions of the tool" and a.source.kind != b.source.kind):
            yield f"Different {name}: {left or 'unknown'} in A, {right or 'unknown'} in B."
    for side, profile in (("A", a), ("B", b)):
        if profile.quality.verdict == "refused":
            yield f"The evidence of {side} is refused: figures by phase are left out."
        elif profile.quality.verdict == "doubtful":
            yield f"The evidence of {side} is doubtful."
        if profile.is_slowed:
            yield f"{side} was slowed down too much by its profiler: idle times are left out."


def _headline(a: Profile, b: Profile, refused: bool) -> Iterable[Delta]:
    """Without idle times if the profiler slowed a side down too much."""
    no_idle = a.is_slowed or b.is_slowed
    no_gap = refused or no_idle
    has_late = any(sync.kind == LATE for profile in (a, b) for sync in profile.syncs)
    figures: list[tuple[str, str, Callable[[Profile], float | None]]] = [
        ("launches a round", "count", lambda p: p.graph.launches_per_round),
        ("graph launches a round", "count", lambda p: p.graph.graph_launches_per_round),
        ("kernels from a graph", "share", lambda p: p.graph.graph_share_kernels),
        ("kernel time from a graph", "share", lambda p: p.graph.graph_share_time),
        ("synchronisations a round", "count", lambda p: p.syncs_per_round),
        ("engine's own count of them", "count", lambda p: p.subject.engine_syncs_per_round if p.subject else None),
        ("wait of the host a round", "ns", lambda p: _wait_ns(p, late=False)),
        (LATE_WAIT, "ns", lambda p: _wait_ns(p, late=True) if has_late else None),
        ("verify to draft, idle", "ns", lambda p: None if no_gap else p.idle.verify_to_draft_idle_ns),
        ("verify to draft, span", "ns", lambda p: None if no_gap else p.idle.verify_to_draft_span_ns),
        ("GPU idle a round", "ns", lambda p: None if no_idle else p.idle.total_ns),
        ("GPU busy a round", "ns", lambda p: p.gpu_busy_ns),
        ("GPU busy", "share", lambda p: p.gpu_busy_share),
        ("round under the profiler", "ns", lambda p: p.round_ns),
        ("profiler's slow-down", "ratio", lambda p: p.slow_down.ratio if p.slow_down else None),
    ]
    for name, unit, figure in figures:
        left, right = figure(a), figure(b)
        if left is not None or right is not None:
            interval = None if left is None or right is None else _interval(name, a, b)
            yield Delta(name=name, unit=unit, a=left, b=right, interval=interval)


def _wait_ns(profile: Profile, *, late: bool) -> float | None:
    """Host waits in the synchronisations that `syncs_per_round` counts, or in the late ones; None without a GPU."""
    if profile.is_host_only:
        return None
    return sum((sync.wait_ns for sync in profile.syncs if (sync.kind == LATE) == late), 0.0)


def _interval(name: str, a: Profile, b: Profile) -> tuple[float, float] | None:
    """Of the change B - A; None for a figure that is not per round, and for too few rounds."""
    if name not in _BY_ROUND:
        return None
    sides = [np.asarray(_BY_ROUND[name](profile), dtype=float) for profile in (a, b)]
    if min(map(len, sides)) < _MIN_ROUNDS:
        return None
    random = np.random.default_rng(_SEED)
    drawn = [side[random.integers(len(side), size=(NUM_RESAMPLES, len(side)))] for side in sides]
    of_a, of_b = ((np.median if name in _MEDIANS else np.mean)(values, axis=1) for values in drawn)
    low, high = np.quantile(of_b - of_a, [0.025, 0.975])
    return float(low), float(high)


def _phases(a: Profile, b: Profile) -> Iterable[PhaseDelta]:
    sides = [{(p.phase, p.draft_step): p for p in profile.phases} for profile in (a, b)]
    for phase, step in sorted({*sides[0], *sides[1]}, key=_phase_order):
        key = (phase, step)
        yield PhaseDelta(phase=phase, draft_step=step, a=sides[0].get(key), b=sides[1].get(key))


def _syncs(a: Profile, b: Profile) -> Iterable[SyncDelta]:
    sides = [{(s.phase, s.api, s.kind, s.site): s for s in profile.syncs} for profile in (a, b)]
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        left, right = (side.get(key) for side in sides)
        calls = [sync.per_round if sync else 0.0 for sync in (left, right)]
        waits = [sync.wait_ns if sync else 0.0 for sync in (left, right)]
        yield SyncDelta(
            phase=key[0],
            api=key[1],
            kind=key[2],
            site=key[3],
            per_round=Delta(name="a round", unit="count", a=calls[0], b=calls[1]),
            wait=Delta(name="wait a round", unit="ns", a=waits[0], b=waits[1]),
        )


def _kernels(a: Profile, b: Profile) -> list[KernelDelta]:
    sides = [_by_name(profile.kernels) for profile in (a, b)]
    deltas = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        (calls_a, total_a), (calls_b, total_b) = (side.get(name, (0.0, 0.0)) for side in sides)
        status = "both" if name in sides[0] and name in sides[1] else "only in A" if name in sides[0] else "only in B"
        deltas.append(
            KernelDelta(
                name=name,
                status=status,
                calls=Delta(name="calls a round", unit="count", a=calls_a, b=calls_b),
                total=Delta(name="time a round", unit="ns", a=total_a, b=total_b),
            )
        )
    return sorted(deltas, key=lambda kernel: -abs(kernel.total.change or 0.0))


def _by_name(kernels: Iterable[KernelFigures]) -> dict[str, tuple[float, float]]:
    """(calls, total ns) a round of each name."""
    sums: dict[str, tuple[float, float]] = {}
    for kernel in kernels:
        calls, total_ns = sums.get(kernel.name, (0.0, 0.0))
        sums[kernel.name] = (calls + kernel.calls, total_ns + kernel.total_ns)
    return sums


def _phase_order(key: tuple[str, int | None]) -> tuple[int, str, int]:
    phase, step = key
    return (PHASES.index(phase) if phase in PHASES else len(PHASES), phase, -1 if step is None else step)
