"""The tables of one profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from specbench.harness.profiling.record import LATE, KernelFigures, PhaseFigures, Profile
from specbench.reports.cells import NOTHING, factor, share
from specbench.reports.document import Table, table_of
from specbench.reports.profile.cells import cause_name, count, kernel_name, phase_name, steps_name, times

MAX_KERNELS = 20
KINDS = {
    "pageable-copy": "pageable-copy: an asynchronous copy that blocks the host, because host memory is not pinned.",
    LATE: "late: waits for an older round while a newer one is queued; not counted among the synchronisations a round.",
}
# Phases in the target part of a graph plan; the drafter's passes are the parts `first` and `later`.
_TARGET = ("advance", "verify", "accept", "compact")


def phase_table(profile: Profile) -> Table:
    columns = {
        "phase": lambda p: phase_name(p.phase, p.draft_step),
        **times("host {}", lambda p: p.host_ns, profile.phases),
        **times("GPU busy {}", lambda p: p.gpu_busy_ns, profile.phases),
        **times("GPU span {}", lambda p: p.gpu_span_ns, profile.phases),
        "of GPU busy": lambda p: share(p.busy_share),
        "kernels": lambda p: count(p.kernels),
        "from a graph": lambda p: share(p.graph_share_kernels),
        "of kernel time": lambda p: share(p.graph_share_time),
        "eager launches": lambda p: count(p.eager_launches),
        "graph launches": lambda p: count(p.graph_launches),
    }
    note = (
        "Per round, means. GPU busy: union of the operations' intervals. GPU span: first start to last end. "
        "A dash under host: the phase shares a graph with others. From a graph: share of the kernels."
    )
    return table_of("Time and launches by phase", columns, profile.phases, [note])


def host_table(profile: Profile) -> Table:
    """Without a GPU: host time by phase, and attention next to the ranges."""
    columns = {
        "phase": lambda p: phase_name(p.phase, p.draft_step),
        **times("host {}", lambda p: p.host_ns, profile.host_phases),
        "of the round": lambda p: share(p.host_ns / profile.round_ns),
        "ranges": lambda p: count(p.ranges),
        "attention calls": lambda p: count(p.attention),
    }
    note = "Per round, means; of the round: of the median one. Host: without the ranges inside."
    return table_of("Time of the host by phase", columns, profile.host_phases, [note])


def parts_table(profile: Profile) -> Table:
    """How verify and each pass of the drafter ran."""
    columns = {
        "part": lambda p: part_name(profile, p),
        "ran": ran_as,
        "kernels": lambda p: count(p.kernels),
        "attention": lambda p: count(p.attention),
        "graph launches": lambda p: count(p.graph_launches),
        "eager launches": lambda p: count(p.eager_launches),
        "ranges": lambda p: count(p.ranges),
    }
    parts = [p for p in profile.phases if p.phase in ("verify", "draft") and p.kernels]
    return table_of("How each part ran", columns, parts, ["Per round, means; attention: kernels of it."])


def replays_table(profile: Profile) -> Table:
    """The graphs of a round, if no range names a phase."""
    shown = () if profile.phases else profile.replays
    columns = {
        "replay": lambda r: str(r.first) if r.num == 1 else f"{r.first} to {r.first + r.num - 1}, the same graph",
        "kernels": lambda r: count(r.kernels),
        "attention": lambda r: count(r.attention),
        **times("GPU busy {}", lambda r: r.gpu_busy_ns, shown),
    }
    note = "Each graph: one replay, in the order of a round. The trace does not say what a graph computes."
    rest = f"Of {share(shown[0].rounds)} of the rounds, which replay this sequence." if shown else ""
    return table_of("Graphs replayed", columns, shown, [f"{note} {rest}"])


def part_name(profile: Profile, figures: PhaseFigures) -> str:
    """`draft, between passes`: the drafter's work outside its numbered passes."""
    if figures.phase == "draft" and figures not in profile.drafter:
        return "draft, between passes"
    return phase_name(figures.phase, figures.draft_step)


def ran_as(figures: PhaseFigures) -> str:
    """The verdict on one part, from what launched its kernels."""
    if not figures.graph_kernels:
        return "eager"
    if figures.graph_kernels < figures.kernels:
        return f"piecewise, {share(figures.graph_share_kernels)} of its kernels from graphs"
    if not figures.graph_launches:
        return "in a graph launched by another part"
    return "one graph" if round(figures.graph_launches, 2) == 1 else f"{count(figures.graph_launches)} graphs"


def claims_table(profile: Profile) -> Table:
    """The graph plan's claim for each part, and the share of its kernels that graphs launched."""
    claims = profile.subject.claimed_parts if profile.subject and profile.phases else {}
    parts = [(part, mode, [p for p in profile.phases if _is_of(profile, p, part)]) for part, mode in claims.items()]
    columns = {
        "part": lambda part: part[0],
        "claimed": lambda part: part[1],
        "measured in": lambda part: _places(part[2]),
        "kernels a round": lambda part: count(sum(p.kernels for p in part[2])),
        "from a graph": lambda part: share(_graph_share(part[2])),
    }
    return table_of("Claimed and measured", columns, parts)


def sync_table(profile: Profile) -> Table:
    ordered = sorted(profile.syncs, key=lambda sync: -sync.wait_ns)
    columns = {
        "phase": lambda s: s.phase or NOTHING,
        "call": lambda s: s.api,
        "kind": lambda s: s.kind,
        "a round": lambda s: count(s.per_round),
        **times("wait {} a round", lambda s: s.wait_ns, ordered),
    }
    if any(sync.site for sync in ordered):
        columns["call site"] = lambda s: s.site or NOTHING
    notes = [note for kind, note in KINDS.items() if any(sync.kind == kind for sync in ordered)]
    return table_of("Synchronisations by place", columns, ordered, notes)


def idle_table(profile: Profile) -> Table:
    idle = profile.idle
    total_ns = sum(idle.by_cause_ns.values())
    causes = dict.fromkeys([*idle.by_cause_ns, *idle.verify_to_draft_by_cause_ns])
    columns = {
        "cause": cause_name,
        **times("{} a round", idle.by_cause_ns.get, causes),
        "of idle": lambda c: share(idle.by_cause_ns[c] / total_ns if total_ns and c in idle.by_cause_ns else None),
        **times("verify to draft {}", idle.verify_to_draft_by_cause_ns.get, causes),
    }
    note = (
        "Means over the rounds. Host late: the launch call began after the GPU had become idle. Back to back: gaps "
        "below 2 µs."
    )
    return table_of("GPU idle time by cause", columns, causes, [note])


def attention_table(profile: Profile) -> Table:
    return _kernel_table("Attention kernels", merged_steps([k for k in profile.kernels if k.is_attention]))


def kernel_table(profile: Profile) -> Table:
    ordered = merged_steps(profile.kernels)[:MAX_KERNELS]
    return _kernel_table(f"Top {len(ordered)} kernels and copies", ordered)


def merged_steps(kernels: Sequence[KernelFigures]) -> list[tuple[str, KernelFigures]]:
    """(where, figures), longest first. Drafter passes that launch a kernel the same way share a row."""
    groups: dict[tuple[str, str, float], list[KernelFigures]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.name, kernel.phase, round(_in_graph(kernel), 6)), []).append(kernel)
    merged = [(_where(group), _sum(group)) for group in groups.values()]
    return sorted(merged, key=lambda item: -item[1].total_ns)


def overview_table(profiles: Sequence[tuple[str, Profile]], shared: Sequence[str]) -> Table:
    """One row per profile, for several arms side by side. `shared`: options that their names leave out."""
    columns = {
        "arm": lambda named: named[0],
        "evidence": lambda named: named[1].quality.verdict,
        "certificate": lambda named: named[1].graph.verdict,
        "launches": lambda named: count(named[1].graph.launches_per_round),
        "graph launches": lambda named: count(named[1].graph.graph_launches_per_round),
        "from a graph": lambda named: share(named[1].graph.graph_share_kernels),
        "syncs": lambda named: count(named[1].syncs_per_round),
        **times("verify to draft idle {}", lambda named: named[1].idle.verify_to_draft_idle_ns, profiles),
        "GPU busy": lambda named: share(named[1].gpu_busy_share),
        "slow-down": lambda named: factor(named[1].slow_down.ratio if named[1].slow_down else None),
    }
    notes = ["Counts are per round; from a graph: share of the kernels; slow-down: profiled round / unprofiled round."]
    notes += [f"All arms with options have {', '.join(shared)}."] * bool(shared)
    return table_of("Arms side by side", columns, profiles, notes)


def _is_of(profile: Profile, figures: PhaseFigures, part: str) -> bool:
    if part == "drafter":
        return figures in profile.drafter
    if part in ("target", "verify"):
        return figures.phase in (_TARGET if part == "target" else ("verify",))
    return figures.draft_step is not None and (figures.draft_step == 0) == (part == "first")


def _places(phases: Sequence[PhaseFigures]) -> str:
    steps = [p.draft_step for p in phases if p.draft_step is not None]
    return steps_name("draft", steps) if steps else ", ".join(p.phase for p in phases) or NOTHING


def _graph_share(phases: Sequence[PhaseFigures]) -> float | None:
    kernels = sum(p.kernels for p in phases)
    return sum(p.graph_kernels for p in phases) / kernels if kernels else None


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


def _kernel_table(title: str, kernels: Sequence[tuple[str, KernelFigures]]) -> Table:
    columns = {
        "kernel": lambda row: kernel_name(row[1].name),
        "phase": lambda row: row[0],
        "calls": lambda row: count(row[1].calls),
        **times("total {}", lambda row: row[1].total_ns, kernels),
        **times("mean {}", lambda row: row[1].mean_ns, kernels),
        "from a graph": lambda row: share(_in_graph(row[1])),
        "of GPU time": lambda row: share(row[1].share),
    }
    return table_of(title, columns, kernels, ["Per round; the JSON has full names."])
