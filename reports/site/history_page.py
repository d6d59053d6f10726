"""Figures by commit: change points, suspects, and what changed in the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from specbench.harness.judge.history.points import METRICS, Series
from specbench.harness.judge.history.steps import DatedStep
from specbench.harness.metrics.figures import SYNCS_PER_ROUND, TPS
from specbench.reports.cells import change_text
from specbench.reports.charts.chart import Axis, Chart, Styles
from specbench.reports.document import Cell, Section, Table, table_of
from specbench.reports.experiments.history_table import short_commit, suspects_table

from .changes import changes_table
from .history_series import SeriesHistory, commit_link, commit_places, event_marks, history_frame
from .page import Page, or_nothing
from .runs import SiteRun

PATH = "history.html"
MAX_MARKS = 6
_MAX_COMMITS = 12  # listed and linked on the page
_PAGE_POINTS = 12_000  # on the whole page, so that it stays far below 5 MB
_SERIES_POINTS = 120  # per line: more could not be told apart and would be slow to draw


def history_page(runs: Sequence[SiteRun], shown: Sequence[SeriesHistory], num_cases: int, styles: Styles) -> Page:
    """`runs`: newest first. `shown`: the histories of the newest of `num_cases` workloads."""
    cases = list(dict.fromkeys(story.series.case for story in shown))
    pages = {run.run_id: run.page for run in runs}
    num_points = max(20, min(_SERIES_POINTS, _PAGE_POINTS // max(len(shown), 1)))
    sections = [
        _workload([s for s in shown if s.series.case == case], n, num_points, styles, pages)
        for n, case in enumerate(cases)
    ]
    if num_cases > len(cases):
        note = f"{num_cases - len(cases)} older workloads are not shown; a site of their runs alone would show them."
        sections.append(Section(title="Older workloads", sentences=(note,)))
    needs = "A history needs runs of the same workload at two or more commits."
    return Page(
        path=PATH,
        title="History by commit",
        lead="When a figure changed, and whether the code or the machine changed it.",
        sections=(*_suspects(shown), *or_nothing(sections, "Nothing to draw", needs), _changes(runs)),
    )


def _title(metric: str) -> str:
    """`Step time, ms`; spelt out if the name is an abbreviation."""
    figure = METRICS[metric]
    spelt = {TPS: "Tokens per second", SYNCS_PER_ROUND: "Synchronisations per round"}
    return spelt.get(figure) or ", ".join(filter(None, [figure.name[0].upper() + figure.name[1:], figure.unit]))


def steps_table(group: Sequence[SeriesHistory], pages: Mapping[str, str]) -> Table:
    """Change points of a workload, newest first; commits link to their first run. `pages`: by run id."""
    steps = sorted(
        ((story.series, step) for story in group for step in story.steps),
        key=lambda row: row[1].after.utc,
        reverse=True,
    )
    columns: dict[str, Callable[[tuple[Series, DatedStep]], str | Cell]] = {
        "since commit": lambda row: commit_link(row[1].after, pages),
        "first run (UTC)": lambda row: row[1].after.utc,
        "metric": lambda row: _title(row[0].metric),
        "strategy": lambda row: row[0].arm,
        "change": lambda row: change_text(row[1].change),
        "verdict": lambda row: f"{row[1].verdict}{', accepted' * row[1].accepted}",
        "commits between": lambda row: f"{short_commit(row[1].before.commit)}..{short_commit(row[1].after.commit)}",
    }
    notes = ("Found by PELT on the logarithms of each commit's median; the search restarts where the machine changes.",)
    return table_of("Change points", columns, steps, notes)


def commits_table(group: Sequence[SeriesHistory], pages: Mapping[str, str]) -> Table:
    """The newest commits of a workload, with their numbers in its charts."""
    places = commit_places(group)
    commits = {(commit.commit, commit.fingerprint): commit for story in group for commit in story.commits}
    newest = sorted(commits, key=lambda key: places[key], reverse=True)[:_MAX_COMMITS]
    columns: dict[str, Callable[[tuple[str, str]], str | Cell]] = {
        "number": lambda key: str(places[key]),
        "commit": lambda key: commit_link(commits[key], pages),
        "first run (UTC)": lambda key: commits[key].utc,
        "runs": lambda key: str(commits[key].num_runs),
        "machine": lambda key: commits[key].fingerprint_text,
    }
    which = "Commits" if len(commits) <= _MAX_COMMITS else f"The newest {_MAX_COMMITS} commits"
    return table_of(f"{which} by number", columns, newest)


def _workload(
    group: Sequence[SeriesHistory], n: int, num_points: int, styles: Styles, pages: Mapping[str, str]
) -> Section:
    charts = []
    for metric in dict.fromkeys(story.series.metric for story in group):
        mine = [story for story in group if story.series.metric == metric]
        frame = history_frame(mine, num_points)
        charts.append(
            Chart(
                name=f"history-{n + 1}-{metric}".replace("_", "-"),
                title=_title(metric),
                description="One point per commit: the median of its runs. Vertical dashes: a change point or another "
                "machine." + " Where lines coincide, the lower ones are drawn wider." * _coincide(frame),
                frame=frame,
                x=Axis(title="commit number, oldest first", scale="whole"),
                y=Axis(title=_title(metric)),
                marks="lines",
                events=event_marks(mine, MAX_MARKS),
                styles=styles.of(frame["series"]),
            )
        )
    most = max(len(story.commits) for story in group)
    sentences = []
    if most > num_points:
        sentences.append(f"The older ones of {most} commits are thinned out, to {num_points} points per line.")
    searched = max(len(story.series.commits) for story in group)
    if most > searched:
        sentences.append(f"Only the newest {searched} commits are searched for change points.")
    steps = steps_table(group, pages)
    if not steps.rows:
        sentences.append("No change point was found.")
    return Section(
        title=group[0].series.case_text,
        sentences=tuple(sentences),
        charts=tuple(charts),
        tables=(*[steps] * bool(steps.rows), commits_table(group, pages)),
    )


def _coincide(frame: pd.DataFrame) -> bool:
    """Whether any two series share a point."""
    return bool(frame.duplicated(["x", "y"]).any())


def _suspects(shown: Sequence[SeriesHistory]) -> list[Section]:
    found = [suspect for story in shown for suspect in story.suspects]
    return [Section(title="Suspects", tables=(suspects_table(found, ()),))] if found else []


def _changes(runs: Sequence[SiteRun]) -> Section:
    table = changes_table([run for run in runs if not run.is_experiment])
    none = "No run differs in hardware, software or settings from the previous run of its model, workload and load."
    return Section(title="Environment changes", sentences=() if table else (none,), tables=(table,) if table else ())
