"""The first page: the newest result as a sentence and a chart, what changed lately, and all runs to choose from."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from specbench.harness.judge.stored import Problem
from specbench.reports.cells import NOTHING
from specbench.reports.charts.chart import Styles
from specbench.reports.document import Command, Fact, Section, Table
from specbench.reports.experiments.verdict_table import NO_VERDICT
from specbench.reports.run.answer import answer

from . import badges
from .groups import by_load, newest_by_load
from .history_series import Story
from .page import Page
from .runs import SiteRun
from .runs_table import counted, runs_table
from .speedup_chart import has_speedups, speedup_chart
from .triage import triage_section
from .verdict_charts import verdict_charts
from .verdict_claim import caution, claim_sentence

PATH = "index.html"
_MAX_SENTENCES = 6


def overview_page(runs: Sequence[SiteRun], problems: Sequence[Problem], told: Sequence[Story], styles: Styles) -> Page:
    """Runs in the order given, the newest first. `told`: the histories that the site has."""
    sections = [*_results(runs, styles), *triage_section(told, {run.run_id: run.page for run in runs})]
    sections.append(Section(title="All runs", facts=_facts(runs), tables=(runs_table(runs),)))
    warnings = []
    if problems:
        rows = tuple((problem.path, problem.reason) for problem in problems)
        broken = Table(title="Directories and reasons", headers=("directory", "reason"), rows=rows)
        sentence = "Everything else on these pages is complete without them."
        sections.append(Section(title="Could not be read", sentences=(sentence,), tables=(broken,)))
        warnings = [
            f"{counted(len(problems), 'directory')} listed below could not be read, or cannot be distinguished."
        ]
    lead = "What is fastest, by how much, and how well that is established."
    return Page(path=PATH, title="Overview", lead=lead, warnings=tuple(warnings), sections=tuple(sections))


def _results(runs: Sequence[SiteRun], styles: Styles) -> list[Section]:
    """The newest run that says something about speed; if that is an A/B experiment, also the newest comparison of
    strategies."""
    speedups = next((run for run in runs if has_speedups(run)), None)
    told = (run for run in runs if run is speedups or (run.ab is not None and run.ab.verdict not in NO_VERDICT))
    newest = next(told, runs[0] if runs else None)
    if newest is None:
        return []
    if newest is speedups:
        return [_strategies("Newest result", runs, newest, styles)]
    compared = [_strategies("Newest comparison of strategies", runs, speedups, styles)] if speedups else []
    return [_newest(newest), *compared]


def _newest(run: SiteRun) -> Section:
    """An experiment, judged or not, or a run that has nothing to compare."""
    said, charts = answer(run.figures), verdict_charts(run.ab)[:1] if run.ab else ()
    if run.ab is not None:
        said = claim_sentence(run.ab)
    elif run.is_experiment:
        said = f"Not judged yet: specbench ab --resume {shlex.quote(str(run.path))}"
    return Section(
        title="Newest result",
        badge=badges.verdict(run.ab) if run.ab else None,
        links=(run.link,),
        sentences=(said, *(caution(run.ab) if run.ab else ())),
        charts=charts,
        commands=(Command(name="The same again", text=run.record.command),),
    )


def _strategies(title: str, runs: Sequence[SiteRun], run: SiteRun, styles: Styles) -> Section:
    """The answer at each load of the runs that differ from this one in their load only."""
    group = next(group for group in by_load(filter(_is_comparison, runs)) if run in group.runs)
    loads = newest_by_load(group)
    several = len(loads) > 1
    said = [f"{name}: {answer(one.figures)}" if several else answer(one.figures) for name, one in loads.items()]
    return Section(
        title=title,
        links=tuple(one.link for one in list(loads.values())[:_MAX_SENTENCES]),
        sentences=(*said[:_MAX_SENTENCES], f"Measured: {group.title}."),
        charts=(speedup_chart(group, styles),),
        commands=(Command(name="The same again", text=run.record.command),),
    )


def _is_comparison(run: SiteRun) -> bool:
    return not run.is_experiment and has_speedups(run)


def _facts(runs: Sequence[SiteRun]) -> tuple[Fact, ...]:
    tones = [badges.certificate(run).tone for run in runs]
    experiments = [run.ab.verdict for run in runs if run.ab]
    counts = ", ".join(f"{experiments.count(word)} {word}" for word in dict.fromkeys(experiments))
    num_certified = sum(run.certificate is not None for run in runs)
    return (
        Fact(name="runs", value=str(len(runs)), note=f"newest: {runs[0].started_utc[:10]}" if runs else ""),
        Fact(name="commits", value=str(len({run.commit for run in runs} - {NOTHING}))),
        Fact(name="A/B experiments", value=str(len(experiments)), note=counts),
        Fact(
            name="losslessness certificates",
            value=f"{tones.count(badges.GOOD)} of {num_certified}" if num_certified else "none",
            note="passed" if num_certified else "no run was certified",
        ),
        Fact(name="runs with traces", value=str(sum(bool(run.profiles) for run in runs))),
    )
