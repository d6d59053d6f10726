"""Where each strategy stops paying: speed-up against no speculation by requests at once, measured and ideal."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.reports.cells import row_name
from specbench.reports.charts.chart import Styles
from specbench.reports.document import Command, Table
from specbench.reports.experiments.crossover_chart import crossover_chart
from specbench.reports.experiments.crossover_table import crossover_tables
from specbench.reports.run.roofline_table import roofline_tables

from .crossover_records import StoredSweep, group_record, loads_of, stored_sweeps
from .groups import Group, by_load, left_out
from .page import Cell, Page, Section
from .runs import SiteRun

PATH = "crossover.html"
MAX_GROUPS = 12
_MAX_LINKS = 8


def crossover_page(runs: Sequence[SiteRun], styles: Styles) -> Page:
    """A chart for each sweep, and for each set of other runs that are alike in all but their load."""
    plain = [run for run in runs if not run.is_experiment]
    sweeps, problems = stored_sweeps(plain)
    swept = {run.page for sweep in sweeps for run in sweep.runs}
    groups = [group for group in by_load(run for run in plain if run.page not in swept) if loads_of(group)]
    curves = [group for group in groups if len(loads_of(group)) > 1]
    at_one = [group for group in groups if len(loads_of(group)) == 1][:MAX_GROUPS]
    sections = [_sweep_section(sweep, n, styles) for n, sweep in enumerate(sweeps[:MAX_GROUPS])]
    sections += [_section(group, n, styles) for n, group in enumerate(curves[:MAX_GROUPS])]
    sections += left_out(max(len(curves), len(sweeps)), MAX_GROUPS)
    if at_one:
        sections.append(_one_load(at_one))
    if not sections:
        needs = "No run here has an arm no-spec, another arm and a number of requests at once (--max-concurrency)."
        sections = [Section(title="Nothing to draw", sentences=(needs,))]
    return Page(
        path=PATH,
        title="Crossover",
        lead="Speculation trades spare compute for time; where many requests use it up, nothing is left to trade.",
        sections=tuple(sections),
        warnings=problems,
    )


def _sweep_section(sweep: StoredSweep, n: int, styles: Styles) -> Section:
    record = sweep.record
    state = "" if record["status"] == "complete" else f" Its status is {record['status']}: loads are missing."
    told = f"A sweep, {record['sweep_id']}: every load is a run, its arms interleaved on the same prompts.{state}"
    title = by_load(sweep.runs)[0].title
    return Section(
        title=f"Sweep: {title}",
        links=_links(sweep.runs),
        sentences=(told,),
        commands=(Command(name="Command", text=str(record["command"])),),
        charts=(crossover_chart(record, styles, f"sweep-{n + 1}", names=sweep.names),),
        tables=(*crossover_tables(record, sweep.names), *roofline_tables(record, sweep.names)),
    )


def _section(group: Group, n: int, styles: Styles) -> Section:
    record = group_record(group)
    chart = crossover_chart(record, styles, f"crossover-{n + 1}")
    told = "Runs of different times that are alike in all but their load; the newest at each load counts."
    return Section(
        title=group.title,
        links=_links(group.runs),
        sentences=(told,),
        charts=(chart,),
        tables=tuple(crossover_tables(record)),
    )


def _links(runs: Sequence[SiteRun]) -> tuple[Cell, ...]:
    return tuple(Cell(text=run.run_id, href=run.page) for run in runs[:_MAX_LINKS])


def _one_load(groups: Sequence[Group]) -> Section:
    """Speed-ups that make no curve: of the newest run that has the arm, with the interval that it stored."""
    rows = [row for group in groups for row in _rows_at_one(group)]
    headers = ("strategy", "speed-up of TPOT [95% CI]", "requests at once", "workload")
    note = "Interval: bootstrap over the prompts of the run."
    table = Table(title="Speed-up at one load", headers=headers, rows=tuple(rows), notes=(note,))
    more = "specbench sweep measures the same at several loads, and says where a strategy stops paying."
    return Section(title="Measured at one load only", sentences=(more,), tables=(table,))


def _rows_at_one(group: Group) -> list[tuple[str, ...]]:
    rows: dict[str, tuple[str, ...]] = {}
    for run in group.runs:
        for arm in run.arms:
            found = arm.speedup
            if run.concurrency is None or found is None or found.tpot_ratio is None:
                continue
            known = found.tpot_ratio_low is not None and found.tpot_ratio_high is not None
            ends = f" [{found.tpot_ratio_low:.2f}, {found.tpot_ratio_high:.2f}]" if known else ""
            row = (row_name(arm), f"{found.tpot_ratio:.2f}x{ends}", str(run.concurrency), group.title)
            rows.setdefault(row_name(arm), row)
    return list(rows.values())
