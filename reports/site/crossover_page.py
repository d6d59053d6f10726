"""Speed-up over no speculation by concurrency, measured and ideal, and where each strategy breaks even."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench.harness.judge.rerun import sweep_command
from specbench.harness.registry import BASELINE
from specbench.harness.stats.crossover import Ratio
from specbench.harness.store.results import ArmSummary, Speedup
from specbench.reports.cells import arm_name, row_name
from specbench.reports.charts.chart import Styles
from specbench.reports.document import Command, Section, Table
from specbench.reports.experiments.crossover_answer import crossover_answer
from specbench.reports.experiments.crossover_chart import crossover_chart
from specbench.reports.experiments.crossover_table import crossover_tables, display_names, ratio_text
from specbench.reports.experiments.interactivity import interactivity_chart
from specbench.reports.run.roofline_table import roofline_tables

from .accuracy_page import was_measured_here
from .crossover_records import StoredSweep, group_record, loads_of, stored_sweeps
from .groups import Group, by_load
from .page import Page, newest_sections, one_open, or_nothing
from .runs import SiteRun

PATH = "crossover.html"
MAX_GROUPS = 12
_MAX_LINKS = 8


def crossover_page(runs: Sequence[SiteRun], styles: Styles) -> Page:
    """A chart for each sweep, and for each set of other runs that differ only in their load."""
    plain = [run for run in runs if not run.is_experiment]
    sweeps, problems = stored_sweeps(plain)
    swept = {run.page for sweep in sweeps for run in sweep.runs}
    groups = [group for group in by_load(run for run in plain if run.page not in swept) if loads_of(group)]
    curves = [group for group in groups if len(loads_of(group)) > 1]
    at_one = [group for group in groups if len(loads_of(group)) == 1][:MAX_GROUPS]
    sections = newest_sections(sweeps, MAX_GROUPS, lambda sweep, n: _of_sweep(sweep, n, styles))
    sections += newest_sections(curves, MAX_GROUPS, lambda group, n: _of_runs(group, n, styles))
    if at_one:
        sections.append(_one_load(at_one))
    needs = "No run here has an arm no-spec, another arm and a concurrency (--max-concurrency)."
    return Page(
        path=PATH,
        title="Break-even concurrency",
        lead="Speculation trades spare compute for time; once many requests use it up, nothing is left to trade.",
        sections=or_nothing(one_open(sections), "Nothing to draw", needs),
        warnings=problems,
    )


def _of_sweep(sweep: StoredSweep, n: int, styles: Styles) -> Section:
    record = sweep.record
    state = "" if record.status == "complete" else f" Its status is {record.status}: loads are missing."
    what = f"A sweep, {record.sweep_id}: every load is a run, its arms interleaved on the same prompts.{state}"
    return Section(
        title=f"Sweep: {by_load(sweep.runs)[0].title}",
        anchor=f"sweep-{sweep.runs[0].anchor}",
        links=tuple(run.link for run in sweep.runs[:_MAX_LINKS]),
        sentences=(crossover_answer(record, sweep.names), what),
        commands=(Command(name="Command", text=record.command),),
        charts=(
            crossover_chart(record, sweep.names, styles, f"sweep-{n + 1}"),
            interactivity_chart(record, sweep.names, styles, f"sweep-users-{n + 1}"),
        ),
        tables=(*crossover_tables(record, sweep.names), *roofline_tables(record, sweep.names)),
    )


def _of_runs(group: Group, n: int, styles: Styles) -> Section:
    record = replace(group_record(group), hardware=group.newest.hardware)
    names = display_names(record)
    return Section(
        title=group.title,
        anchor=f"loads-{group.newest.anchor}",
        links=tuple(run.link for run in group.runs[:_MAX_LINKS]),
        sentences=(
            crossover_answer(record, names),
            "Runs made at different times that differ only in their load; the newest at each load counts.",
        ),
        charts=(
            crossover_chart(record, names, styles, f"crossover-{n + 1}"),
            interactivity_chart(record, names, styles, f"users-{n + 1}"),
        ),
        tables=tuple(crossover_tables(record, names)),
    )


def _one_load(groups: Sequence[Group]) -> Section:
    """Speed-ups at a single load: from the newest run that has the arm, with its stored interval."""
    newest: dict[tuple[str, str], tuple[SiteRun, ArmSummary, Speedup]] = {}
    for group in groups:
        for run in group.runs:
            for arm in run.arms if run.concurrency else ():
                if arm.speedup and arm.speedup.tpot_ratio:
                    newest.setdefault((group.title, arm_name(arm)), (run, arm, arm.speedup))
    rows = [(row_name(a), _ratio(s), str(run.concurrency), title) for (title, _), (run, a, s) in newest.items()]
    headers = ("strategy", "speed-up of TPOT [95% CI]", "concurrency", "workload")
    note = "Interval: bootstrap over the blocks and prompts of the run; none with one repeat."
    table = Table(title="Speed-up at one load", headers=headers, rows=tuple(rows), notes=(note,))
    own = next((run for run, _, _ in newest.values() if was_measured_here(run)), None)
    arms = [arm.label for arm in own.record.arms if arm.strategy != BASELINE] if own else []
    name = "At several loads, with the break-even concurrency"
    commands = (Command(name=name, text=sweep_command(own.record, arms)),) if own else ()
    return Section(title="Measured at one load only", commands=commands, tables=(table,))


def _ratio(s: Speedup) -> str:
    return ratio_text(Ratio(ratio=s.tpot_ratio, low=s.tpot_ratio_low, high=s.tpot_ratio_high) if s.tpot_ratio else None)
