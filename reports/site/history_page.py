"""Figures by commit: dated steps, suspects, and what changed in the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from specbench.harness.judge.history.accepted import Accepted
from specbench.harness.judge.history.points import METRICS, Commit
from specbench.harness.metrics.figures import SYNCS_PER_ROUND, TPS
from specbench.reports.charts.chart import LINES, Axis, Chart, Events, Styles
from specbench.reports.experiments.compare_table import signed
from specbench.reports.experiments.history_table import suspects_table

from .changes import changes_table
from .history_series import Story, commit_name, commit_places, event_marks, history_frame, points, stories
from .page import Cell, LinkTable, Page, Section, plain_cells
from .runs import SiteRun

PATH = "history.html"
MAX_WORKLOADS, MAX_MARKS = 4, 6
_MOST_COMMITS = 12  # that the page names and leads to
_PAGE_POINTS = 12_000  # drawn on the page, so that it stays far below 5 MB
_SERIES_POINTS = 120  # in one line: more cannot be told apart, and take time to draw


def history_page(runs: Sequence[SiteRun], accepted: Sequence[Accepted], styles: Styles) -> Page:
    """Runs newest first; experiments are no part of a history."""
    shown, num_cases = stories(points(runs), accepted, MAX_WORKLOADS)
    cases = list(dict.fromkeys(story.series.case for story in shown))
    pages = {run.run_id: run.page for run in runs}
    num_points = max(20, min(_SERIES_POINTS, _PAGE_POINTS // max(len(shown), 1)))
    sections = [
        _workload([s for s in shown if s.series.case == case], n, num_points, styles, pages)
        for n, case in enumerate(cases)
    ]
    if num_cases > len(cases):
        note = f"{num_cases - len(cases)} older workloads are left out: specbench history show has them all."
        sections.append(Section(title="Older workloads", sentences=(note,)))
    if not sections:
        note = "A history needs runs of one workload at two commits or more."
        sections = [Section(title="Nothing to draw", sentences=(note,))]
    return Page(
        path=PATH,
        title="History by commit",
        lead="When a figure changed, and whether the code or the machine changed it.",
        sections=(*_suspects(shown), *sections, _changes(runs)),
    )


def _title(metric: str) -> str:
    """`Step time, ms`; in words where the name is short for them."""
    figure = METRICS[metric]
    spelt = {TPS: "Tokens per second", SYNCS_PER_ROUND: "Synchronisations a round"}
    return spelt.get(figure) or ", ".join(filter(None, [figure.name[0].upper() + figure.name[1:], figure.unit]))


def steps_table(own: Sequence[Story], pages: Mapping[str, str]) -> LinkTable:
    """Dated steps of a workload, the newest first; commits lead to their first run. `pages`: by run id."""
    steps = [(story.series, step) for story in own for step in story.steps]
    steps.sort(key=lambda found: found[1].after.utc, reverse=True)
    rows = tuple(
        (
            _commit(step.after, pages),
            Cell(text=step.after.utc),
            Cell(text=_title(series.metric)),
            Cell(text=series.arm),
            Cell(text=signed(step.change)),
            Cell(text=f"{step.verdict}{', accepted' * step.accepted}"),
            Cell(text=f"{commit_name(step.before)}..{commit_name(step.after)}"),
        )
        for series, step in steps
    )
    headers = ("since commit", "first run (UTC)", "metric", "strategy", "change", "verdict", "commits between")
    notes = ("PELT over log values of the medians by commit; a machine change starts anew.",)
    return LinkTable(title="Dated steps", headers=headers, rows=rows, notes=notes)


def commits_table(own: Sequence[Story], pages: Mapping[str, str]) -> LinkTable:
    """The newest commits of a workload with the numbers that they have in its charts."""
    places = commit_places(own)
    found = {
        (commit.commit, commit.fingerprint): commit for story in own for commit in (*story.older, *story.series.commits)
    }
    newest = sorted(found, key=lambda key: places[key], reverse=True)[:_MOST_COMMITS]
    rows = tuple(
        (
            Cell(text=str(places[key])),
            _commit(found[key], pages),
            *plain_cells(found[key].utc, str(found[key].num_runs), found[key].fingerprint_text),
        )
        for key in newest
    )
    title = "Commits by number" if len(found) <= _MOST_COMMITS else f"The newest {_MOST_COMMITS} commits by number"
    return LinkTable(title=title, headers=("number", "commit", "first run (UTC)", "runs", "machine"), rows=rows)


def _commit(commit: Commit, pages: Mapping[str, str]) -> Cell:
    return Cell(text=commit_name(commit), href=next((pages[i] for i in commit.run_ids if i in pages), ""))


def _workload(own: Sequence[Story], n: int, num_points: int, styles: Styles, pages: Mapping[str, str]) -> Section:
    charts = []
    for metric in dict.fromkeys(story.series.metric for story in own):
        mine = [story for story in own if story.series.metric == metric]
        frame, marks = history_frame(mine, num_points), event_marks(mine, MAX_MARKS)
        events = (Events(marks),) if marks else ()
        charts.append(
            Chart(
                name=f"history-{n + 1}-{metric}".replace("_", "-"),
                title=_title(metric),
                description="A point a commit, medians over its runs. Upright dashes: a step, or another machine."
                + " Where lines lie on each other only the last is seen." * _coincide(frame),
                frame=frame,
                x=Axis(title="commit, the oldest 1", scale="whole"),
                y=Axis(title=_title(metric)),
                layers=(*events, *LINES),
                styles=styles.of(frame["series"]),
            )
        )
    most = max(story.num_commits for story in own)
    told = []
    if most > num_points:
        told.append(f"Of {most} commits the newest are drawn, the older ones thinned: {num_points} points a line.")
    searched = max(len(story.series.commits) for story in own)
    if most > searched:
        told.append(f"Steps are looked for in the newest {searched} commits; specbench history show looks in all.")
    steps = steps_table(own, pages)
    if not steps.rows:
        told.append("No step was found.")
    return Section(
        title=own[0].series.case_text,
        sentences=tuple(told),
        charts=tuple(charts),
        link_tables=(*[steps] * bool(steps.rows), commits_table(own, pages)),
    )


def _coincide(frame: pd.DataFrame) -> bool:
    """Whether any two series have a point in common."""
    return bool(frame.duplicated(["x", "y"]).any())


def _suspects(shown: Sequence[Story]) -> list[Section]:
    found = [suspect for story in shown for suspect in story.suspects]
    return [Section(title="Suspects", tables=(suspects_table(found, ()),))] if found else []


def _changes(runs: Sequence[SiteRun]) -> Section:
    table = changes_table([run for run in runs if not run.is_experiment])
    none = "No run differs from the one before it of its model, workload and load in hardware, software or settings."
    return Section(title="Environment changes", sentences=() if table else (none,), tables=(table,) if table else ())
