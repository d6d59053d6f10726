"""The first page: the newest result as a sentence and a chart, what changed lately, and all runs to choose from."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.judge.stored import Problem
from specbench.reports.cells import NOTHING, counted
from specbench.reports.charts.chart import Styles
from specbench.reports.document import Command, Fact, Section, Table, table_of
from specbench.reports.run.answer import answer

from . import badges
from .groups import by_load, newest_by_load
from .headline import doubts_of, headlines, objection
from .history_series import SeriesHistory
from .page import Page
from .runs import SiteRun
from .runs_table import runs_table
from .speedup_chart import speedup_chart
from .triage import triage_section
from .verdict_charts import verdict_charts
from .verdict_claim import caution, claim_sentence

PATH = "index.html"
_MAX_SENTENCES, _MAX_REASONS = 6, 8


def overview_page(
    runs: Sequence[SiteRun], problems: Sequence[Problem], histories: Sequence[SeriesHistory], styles: Styles
) -> Page:
    """Runs in the given order, newest first. `histories`: those that the site has."""
    sections = [*_results(runs, styles), *triage_section(histories, {run.run_id: run.page for run in runs})]
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
    """The newest run that may be the headline; if that is an A/B experiment, also the newest comparison of
    strategies."""
    first = headlines(runs)
    if not first:
        return [_no_result(runs)] if runs else []
    arms = [run for run in first if not run.is_experiment]
    if first[0] in arms:
        return [_strategies("Newest result", arms, styles)]
    return [_experiment(first[0]), *([_strategies("Newest comparison of strategies", arms, styles)] if arms else [])]


def _doubtful(run: SiteRun) -> tuple[str, ...]:
    marks = doubts_of(run)
    return (f"In doubt: {'; '.join(marks)}. No other run here is free of doubts.",) if marks else ()


def _no_result(runs: Sequence[SiteRun]) -> Section:
    """Why each of the newest runs cannot be the headline."""
    table = table_of("Runs and reasons", {"run": lambda run: run.link, "why not": objection}, runs[:_MAX_REASONS])
    sentences = ["No run here has a result to put first."]
    if len(runs) > _MAX_REASONS:
        sentences.append(f"Not listed: {counted(len(runs) - _MAX_REASONS, 'older run')}, also without a result.")
    return Section(title="No result yet", sentences=tuple(sentences), tables=(table,))


def _experiment(run: SiteRun) -> Section:
    assert run.ab is not None
    return Section(
        title="Newest result",
        badge=badges.verdict(run.ab),
        links=(run.link,),
        sentences=(claim_sentence(run.ab), *_doubtful(run), *caution(run.ab)),
        charts=verdict_charts(run.ab)[:1],
        commands=(Command(name="Reproduce", text=run.record.command),),
    )


def _strategies(title: str, runs: Sequence[SiteRun], styles: Styles) -> Section:
    """The answer at each load, for the runs that differ from the newest only in their load. `runs`: possible
    headlines."""
    newest = runs[0]
    group = next(group for group in by_load(runs) if newest in group.runs)
    loads = newest_by_load(group)
    several = len(loads) > 1
    answers = [f"{name}: {answer(one.figures)}" if several else answer(one.figures) for name, one in loads.items()]
    return Section(
        title=title,
        links=tuple(one.link for one in list(loads.values())[:_MAX_SENTENCES]),
        sentences=(*answers[:_MAX_SENTENCES], *_doubtful(newest), f"Measured: {group.title}."),
        charts=(speedup_chart(group, styles),),
        commands=(Command(name="Reproduce", text=newest.record.command),),
    )


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
