"""The tables of one profile, cells as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from specbench.harness.profiling.record import LATE, KernelFigures, PhaseFigures, Profile
from specbench.reports.cells import NOTHING
from specbench.reports.document import Table
from specbench.reports.profile.cells import (
    cause_name,
    count,
    kernel_name,
    microseconds,
    phase_name,
    ratio,
    share,
    steps_name,
)

MOST_KERNELS = 20
_KINDS = {
    "pageable-copy": "pageable-copy: a copy that is asynchronous by name but waits, because the host's memory is not "
    "pinned.",
    LATE: "late: for an older round than the newest, which is queued by then; not among the synchronisations a round.",
}
# The phases that a graph plan's target part holds; the drafter's passes are the parts `first` and `later`.
_TARGET = ("advance", "verify", "accept", "compact")


def phase_table(profile: Profile) -> Table:
    rows = tuple(_phase_row(figures) for figures in profile.phases)
    headers = (
        "phase",
        "host µs",
        "GPU busy µs",
        "GPU span µs",
        "of GPU busy",
        "kernels",
        "from a graph",
        "of kernel time",
        "eager launches",
        "graph launches",
    )
    notes = (
        "Per round, means. GPU busy: union of the operations' intervals. GPU span: first start to last end. "
        "A dash under host: the phase lies inside a graph with others. From a graph: share of the kernels.",
    )
    return Table(title="Time and launches by phase", headers=headers, rows=rows, notes=notes)


def _phase_row(figures: PhaseFigures) -> tuple[str, ...]:
    return (
        phase_name(figures.phase, figures.draft_step),
        microseconds(figures.host_ns),
        microseconds(figures.gpu_busy_ns),
        microseconds(figures.gpu_span_ns),
        share(figures.busy_share),
        count(figures.kernels),
        share(figures.graph_share_kernels),
        share(figures.graph_share_time),
        count(figures.eager_launches),
        count(figures.graph_launches),
    )


def claims_table(profile: Profile) -> Table | None:
    """What the graph plan claims of each part, against the kernels that graphs launched; None without a claim."""
    if profile.subject is None or not profile.subject.claimed_parts:
        return None
    claims = profile.subject.claimed_parts.items()
    rows = tuple((part, mode, *_measured([p for p in profile.phases if _is_of(p, part)])) for part, mode in claims)
    headers = ("part", "claimed", "measured in", "kernels a round", "from a graph")
    return Table(title="Claimed and measured", headers=headers, rows=rows)


def _is_of(figures: PhaseFigures, part: str) -> bool:
    if part == "target":
        return figures.phase in _TARGET
    return figures.draft_step is not None and (figures.draft_step == 0) == (part == "first")


def _measured(phases: Sequence[PhaseFigures]) -> tuple[str, str, str]:
    """(where, kernels, share from a graph) over phases of one part."""
    kernels = sum(figures.kernels for figures in phases)
    in_graph = sum(figures.graph_kernels for figures in phases)
    steps = [figures.draft_step for figures in phases if figures.draft_step is not None]
    where = steps_name("draft", steps) if steps else ", ".join(figures.phase for figures in phases)
    return (
        (where or NOTHING, count(kernels), share(in_graph / kernels)) if kernels else (where or NOTHING, "0", NOTHING)
    )


def sync_table(profile: Profile) -> Table | None:
    if not profile.syncs:
        return None
    ordered = sorted(profile.syncs, key=lambda sync: -sync.wait_ns)
    rows = tuple((s.phase or NOTHING, s.api, s.kind, count(s.per_round), microseconds(s.wait_ns)) for s in ordered)
    headers = ("phase", "call", "kind", "a round", "wait µs a round")
    notes = tuple(note for kind, note in _KINDS.items() if any(sync.kind == kind for sync in ordered))
    return Table(title="Synchronisations by place", headers=headers, rows=rows, notes=notes)


def idle_table(profile: Profile) -> Table | None:
    idle = profile.idle
    causes = dict.fromkeys([*idle.by_cause_ns, *idle.verify_to_draft_by_cause_ns])
    if not causes:
        return None
    rows = [
        (
            cause_name(cause),
            *_with_share(idle.by_cause_ns, cause),
            microseconds(idle.verify_to_draft_by_cause_ns.get(cause)),
        )
        for cause in causes
    ]
    headers = ("cause", "µs a round", "of idle", "verify to draft µs")
    notes = (
        "Means over the rounds. Host late: the launching call came after the GPU had run dry. Back to back: gaps below "
        "2 µs.",
    )
    return Table(title="GPU idle time by cause", headers=headers, rows=tuple(rows), notes=notes)


def _with_share(by_cause_ns: Mapping[str, float], cause: str) -> tuple[str, str]:
    total = sum(by_cause_ns.values())
    value = by_cause_ns.get(cause)
    return microseconds(value), share(value / total) if value is not None and total else NOTHING


def attention_table(profile: Profile) -> Table | None:
    return _kernel_table("Attention kernels", merged_steps([k for k in profile.kernels if k.is_attention]))


def kernel_table(profile: Profile) -> Table | None:
    ordered = merged_steps(profile.kernels)[:MOST_KERNELS]
    return _kernel_table(f"Top {len(ordered)} kernels and copies", ordered)


def merged_steps(kernels: Sequence[KernelFigures]) -> list[tuple[str, KernelFigures]]:
    """(where, figures), the longest first: passes of the drafter that launch a kernel the same way are one row."""
    groups: dict[tuple[str, str, float], list[KernelFigures]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.name, kernel.phase, round(_in_graph(kernel), 6)), []).append(kernel)
    merged = [(_where(group), _sum(group)) for group in groups.values()]
    return sorted(merged, key=lambda item: -item[1].total_ns)


def _sum(group: Sequence[KernelFigures]) -> KernelFigures:
    calls = sum(kernel.calls for kernel in group)
    total_ns = sum(kernel.total_ns for kernel in group)
    return dataclasses.replace(
        group[0],
        calls=calls,
        total_ns=total_ns,
        mean_ns=total_ns / calls if calls else 0.0,
        in_graph=sum(kernel.in_graph for kernel in group),
        share=sum(kernel.share for kernel in group),
    )


def _where(group: Sequence[KernelFigures]) -> str:
    steps = [kernel.draft_step for kernel in group if kernel.draft_step is not None]
    return steps_name(group[0].phase or NOTHING, steps)


def _in_graph(kernel: KernelFigures) -> float:
    return min(1.0, kernel.in_graph / kernel.calls) if kernel.calls else 0.0


def _kernel_table(title: str, kernels: Sequence[tuple[str, KernelFigures]]) -> Table | None:
    if not kernels:
        return None
    headers = ("kernel", "phase", "calls", "total µs", "mean µs", "from a graph", "of GPU time")
    rows = tuple(
        (
            kernel_name(kernel.name),
            where,
            count(kernel.calls),
            microseconds(kernel.total_ns),
            microseconds(kernel.mean_ns),
            share(_in_graph(kernel)),
            share(kernel.share),
        )
        for where, kernel in kernels
    )
    return Table(title=title, headers=headers, rows=rows, notes=("Per round; whole names are in the JSON.",))


def overview_table(profiles: Sequence[tuple[str, Profile]], shared: Sequence[str] = ()) -> Table:
    """One row a profile, for several arms side by side. `shared`: options that their names leave out."""
    headers = (
        "arm",
        "evidence",
        "certificate",
        "launches",
        "graph launches",
        "from a graph",
        "syncs",
        "verify to draft idle µs",
        "GPU busy",
        "slow-down",
    )
    rows = tuple(
        (
            name,
            profile.quality.verdict,
            profile.graph.verdict,
            count(profile.graph.launches_per_round),
            count(profile.graph.graph_launches_per_round),
            share(profile.graph.graph_share_kernels),
            count(profile.syncs_per_round),
            microseconds(profile.idle.verify_to_draft_idle_ns),
            share(profile.gpu_busy_share),
            ratio(profile.slow_down.ratio if profile.slow_down else None),
        )
        for name, profile in profiles
    )
    notes = ["Counts are per round; from a graph: share of the kernels; slow-down: profiled round / unprofiled round."]
    notes += [f"All arms with options have {', '.join(shared)}."] * bool(shared)
    return Table(title="Arms side by side", headers=headers, rows=rows, notes=tuple(notes))
