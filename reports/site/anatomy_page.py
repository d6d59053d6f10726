"""What a decode round is made of: phases stacked, launches, graphs, synchronisations, idle time."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from specbench.harness.profiling.record import Profile
from specbench.reports.cells import NOTHING, milliseconds, number, row_name
from specbench.reports.charts.chart import drawable
from specbench.reports.document import Table
from specbench.reports.profile.cells import count, microseconds, phase_name, share
from specbench.reports.profile.sentences import SHARES_NOT_SPEED
from specbench.reports.profile.timeline import timeline, timeline_span_ns
from specbench.reports.run.charts import phase_chart, phase_frame, stack_chart

from .groups import Group, by_case, left_out
from .page import Cell, Page, Section
from .runs import SiteRun

PATH = "anatomy.html"
MAX_GROUPS, MAX_TIMELINES = 10, 4
IDLE = "GPU idle"
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
    groups = [g for g in by_case(runs) if len(phase_frame(g.newest.arms)) or g.newest.profiles]
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


def trace_frame(run: SiteRun) -> pd.DataFrame:
    """y: the arm, part: a phase of the GPU or its idle time, x: µs in a round under the profiler."""
    rows: list[tuple[str, str, float]] = []
    for arm, profile in run.profiles.items():
        parts: dict[str, float] = {}
        for p in profile.phases if profile.quality.verdict != "refused" else ():
            name = phase_name(p.phase, p.draft_step)
            parts[name] = parts.get(name, 0.0) + p.gpu_busy_ns / 1e3
        rows += [(arm, part, value) for part, value in parts.items() if value]
        rows += [(arm, IDLE, profile.idle.total_ns / 1e3)] if parts else []
    return pd.DataFrame(rows, columns=["y", "part", "x"])


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
    traced = stack_chart(
        trace_frame(run),
        name=f"trace-{n + 1}",
        title="GPU time of a round, from traces",
        description="Busy time by phase and idle time, under the profiler: shares, not speed.",
        x_title="µs in a round",
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
        charts=drawable(phase_chart(run.arms, n), traced),
        timelines=tuple(drawn),
        tables=tuple(tables),
    )
