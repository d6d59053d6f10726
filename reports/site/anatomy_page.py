"""What a decode round is made of: phases stacked, launches, graphs, synchronisations, idle time."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from specbench.harness.profiling.record import Profile
from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import NOTHING, milliseconds, number, row_name
from specbench.reports.document import Table
from specbench.reports.profile.cells import count, microseconds, phase_name, share
from specbench.reports.profile.sentences import SHARES_NOT_SPEED
from specbench.reports.profile.timeline import timeline, timeline_span_ns

from .groups import Group, by_case, left_out
from .page import Cell, Page, Section
from .plots import Plot, Stacks, phase_styles
from .runs import SiteRun

PATH = "anatomy.html"
MAX_GROUPS, MAX_TIMELINES = 10, 4
GAP, IDLE = "gap", "GPU idle"
_CLOCK_HEADERS = (
    "strategy",
    "round ms (median)",
    "gap ms",
    "syncs/round",
    "rows/round",
    "batch",
    "graphs of the target",
)
_TRACE_HEADERS = (
    "strategy",
    "graph claim",
    "launches/round",
    "graph launches/round",
    "graph share of kernels",
    "syncs/round",
    "GPU idle µs/round",
    "verify to draft idle µs",
    "evidence",
)


def anatomy_page(runs: Sequence[SiteRun]) -> Page:
    """The newest run of each workload that recorded phases or traces."""
    groups = [g for g in by_case(runs) if len(phase_frame(g.newest)) or g.newest.profiles]
    shown = [_section(group, n) for n, group in enumerate(groups[:MAX_GROUPS])]
    shown += left_out(len(groups), MAX_GROUPS)
    if not shown:
        shown = [Section(title="Nothing to draw", sentences=("No run here recorded phases or traces.",))]
    return Page(
        path=PATH,
        title="Step anatomy",
        lead="Where the time of a decode round goes. The newest run of each workload.",
        sections=tuple(shown),
    )


def phases_ms(arm: ArmSummary) -> tuple[dict[str, float], bool]:
    """Medians by phase, the host's gap first, and whether they come from an instrumented capture."""
    plain = arm.group("phases_ms.plain")
    phases = plain or arm.group("phases_ms.instrumented")
    gap_ms = arm.median("gap_ms.p50")
    return (phases if not phases or gap_ms is None else {GAP: gap_ms, **phases}), not plain


def phase_frame(run: SiteRun) -> pd.DataFrame:
    """y: the arm, part: a phase, value: its median in ms of a decode round."""
    rows = []
    for arm in run.arms:
        found, is_instrumented = phases_ms(arm)
        name = row_name(arm) + (" (instrumented)" if is_instrumented else "")
        rows += [{"y": name, "part": part, "value": value} for part, value in found.items()]
    return pd.DataFrame(rows)


def trace_frame(run: SiteRun) -> pd.DataFrame:
    """y: the arm, part: a phase of the GPU or its idle time, value: µs in a round under the profiler."""
    rows = []
    for arm, profile in run.profiles.items():
        parts: dict[str, float] = {}
        for p in profile.phases if profile.quality.verdict != "refused" else ():
            name = phase_name(p.phase, p.draft_step)
            parts[name] = parts.get(name, 0.0) + p.gpu_busy_ns / 1e3
        rows += [{"y": arm, "part": part, "value": value} for part, value in parts.items() if value]
        rows += [{"y": arm, "part": IDLE, "value": profile.idle.total_ns / 1e3}] if parts else []
    return pd.DataFrame(rows)


def clock_table(run: SiteRun) -> Table:
    """What the engine's own step log counts, without a profiler."""
    rows = []
    for arm in run.arms:
        if not arm.num_repeats:
            continue
        graphs = arm.group("rounds_by_graph")
        total = sum(graphs.values())
        used = ", ".join(f"{name} {n / total:.0%}" for name, n in graphs.items()) if total else NOTHING
        figures = [arm.median(name) for name in ("syncs_per_round", "rows_per_round", "mean_batch_size")]
        times = [milliseconds(arm.median(name)) for name in ("round_ms.p50", "gap_ms.p50")]
        rows.append((row_name(arm), *times, *map(number, figures), used))
    return Table(title="Counted by the engine", headers=_CLOCK_HEADERS, rows=tuple(rows))


def trace_table(run: SiteRun) -> Table:
    """What the traces count."""
    rows = tuple((arm, *_trace_cells(profile)) for arm, profile in run.profiles.items())
    return Table(title="Counted in traces", headers=_TRACE_HEADERS, rows=rows, notes=(SHARES_NOT_SPEED,))


def _trace_cells(profile: Profile) -> tuple[str, ...]:
    graph, idle = profile.graph, profile.idle
    return (
        graph.verdict,
        count(graph.launches_per_round),
        count(graph.graph_launches_per_round),
        share(graph.graph_share_kernels),
        count(profile.syncs_per_round),
        microseconds(idle.total_ns),
        microseconds(idle.verify_to_draft_idle_ns),
        profile.quality.verdict,
    )


def _section(group: Group, n: int) -> Section:
    run = group.newest
    charts: list[Plot] = []
    clocked, traced = phase_frame(run), trace_frame(run)
    if len(clocked):
        charts.append(
            Stacks(
                name=f"phases-{n + 1}",
                title="Phases of a decode round",
                description="Medians of each phase by the engine's clock. An instrumented capture gives shares, "
                "not speed.",
                frame=clocked,
                x_title="ms in a decode round",
                y_title="strategy",
                styles=phase_styles(clocked["part"]),
            )
        )
    if len(traced):
        charts.append(
            Stacks(
                name=f"trace-{n + 1}",
                title="GPU time of a round, from traces",
                description="Busy time by phase and idle time, under the profiler: shares, not speed.",
                frame=traced,
                x_title="µs in a round",
                y_title="strategy",
                styles=phase_styles(traced["part"]),
            )
        )
    span = max((timeline_span_ns(p) for p in run.profiles.values()), default=0.0)
    drawn = [
        timeline(profile, f"{arm}: round {profile.timeline_round}, the median one", span)
        for arm, profile in list(run.profiles.items())[:MAX_TIMELINES]
        if profile.timeline and profile.quality.verdict != "refused"
    ]
    tables = [clock_table(run)] * bool(run.arms) + [trace_table(run)] * bool(run.profiles)
    return Section(
        title=group.title,
        links=(Cell(text=run.run_id, href=run.page),),
        charts=tuple(charts),
        timelines=tuple(drawn),
        tables=tuple(tables),
    )
