"""The parts of a decode round: stacked phases, launches, graphs, synchronisations, idle time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from specbench.harness.profiling.record import Profile
from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import NOTHING, median, median_ms, row_name, share
from specbench.reports.charts.chart import Chart
from specbench.reports.document import Section, Table, table_of
from specbench.reports.profile.cells import MICROSECONDS, count, phase_name, times, unit_of
from specbench.reports.profile.sentences import SHARES_NOT_SPEED
from specbench.reports.profile.timeline import timeline, timeline_span_ns
from specbench.reports.run.charts import phase_chart, phase_frame, stack_chart

from .groups import Group, by_case
from .page import Page, newest_sections, one_open, or_nothing
from .runs import SiteRun

PATH = "anatomy.html"
MAX_GROUPS, MAX_TIMELINES = 10, 4
IDLE = "GPU idle"


def anatomy_page(runs: Sequence[SiteRun]) -> Page:
    """The newest run of each workload that recorded phases or traces."""
    groups = [g for g in by_case(runs) if len(phase_frame(g.newest.arms)) or g.newest.profiles]
    sections = newest_sections(groups, MAX_GROUPS, _section)
    return Page(
        path=PATH,
        title="Step anatomy",
        lead="Where the time of a decode round goes, in the newest run of each workload.",
        sections=or_nothing(one_open(sections), "Nothing to draw", "No run here recorded phases or traces."),
    )


def trace_frame(run: SiteRun) -> pd.DataFrame:
    """y: the arm, part: a phase of the GPU or its idle time, x: µs in a round under the profiler."""
    rows: list[tuple[str, str, float]] = []
    for arm, profile in run.profiles.items():
        if profile.quality.verdict != "refused" and profile.phases:
            rows += [(arm, phase_name(p.phase, p.draft_step), p.gpu_busy_ns / 1e3) for p in profile.phases]
            rows += [(arm, IDLE, (profile.idle.total_ns or 0.0) / 1e3)]
    frame = pd.DataFrame(rows, columns=["y", "part", "x"])
    summed = frame.groupby(["y", "part"], sort=False, as_index=False)["x"].sum()
    return summed[(summed["x"] > 0) | (summed["part"] == IDLE)]


def _graphs(arm: ArmSummary) -> str:
    graphs = arm.group("rounds_by_graph")
    total = sum(graphs.values())
    return ", ".join(f"{name} {n / total:.0%}" for name, n in graphs.items()) if total else NOTHING


_CLOCK: dict[str, Callable[[ArmSummary], str]] = {
    "strategy": row_name,
    "round ms (median)": median_ms("round_ms.p50"),
    "gap ms": median_ms("gap_ms.p50"),
    "syncs/round": median("syncs_per_round"),
    "rows/round": median("rows_per_round"),
    "batch": median("mean_batch_size"),
    "target's graphs": _graphs,
}


def _trace_table(profiles: Mapping[str, Profile]) -> Table:
    rows = list(profiles.items())
    columns: dict[str, Callable[[tuple[str, Profile]], str]] = {
        "strategy": lambda row: row[0],
        "graph claim": lambda row: row[1].graph.verdict,
        "launches/round": lambda row: count(row[1].graph.launches_per_round),
        "graph launches/round": lambda row: count(row[1].graph.graph_launches_per_round),
        "graph share of kernels": lambda row: share(row[1].graph.graph_share_kernels),
        "syncs/round": lambda row: count(row[1].syncs_per_round),
        **times("GPU idle {}/round", lambda row: row[1].idle.total_ns, rows),
        **times("verify to draft idle {}", lambda row: row[1].idle.verify_to_draft_idle_ns, rows),
        "evidence": lambda row: row[1].quality.verdict,
    }
    return table_of("Counted in traces", columns, rows, (SHARES_NOT_SPEED,))


def trace_chart(run: SiteRun, n: int) -> Chart:
    """In the unit that suits the longest round."""
    frame = trace_frame(run)
    unit = unit_of(frame.groupby("y")["x"].sum() * MICROSECONDS.ns)
    return stack_chart(
        frame.assign(x=frame["x"] * (MICROSECONDS.ns / unit.ns)),
        name=f"trace-{n + 1}",
        title="GPU time of a round, from traces",
        description="Busy time by phase and idle time, under the profiler: shares, not speed.",
        x_title=f"{unit.name} in a round",
    )


def _section(group: Group, n: int) -> Section:
    run = group.newest
    span = max((timeline_span_ns(p) for p in run.profiles.values()), default=0.0)
    timelines = [
        timeline(profile, f"{arm}: round {profile.timeline_round}, the median one", span)
        for arm, profile in list(run.profiles.items())[:MAX_TIMELINES]
        if profile.timeline and profile.quality.verdict != "refused"
    ]
    clock = table_of("Counted by the engine", _CLOCK, [arm for arm in run.arms if arm.num_repeats])
    return Section(
        title=group.title,
        anchor=run.anchor,
        links=(run.link,),
        charts=(phase_chart(run.arms, n), trace_chart(run, n)),
        timelines=tuple(timelines),
        tables=(clock, *[_trace_table(run.profiles)] * bool(run.profiles)),
    )
