"""Figures by commit: dated steps, suspects, and what changed in the environment."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.history.accepted import Accepted
from specbench.reports.compare_table import signed
from specbench.reports.history_table import suspects_table
from specbench.reports.result_table import ResultTable

from .changes import changes_table
from .groups import by_case
from .history_series import Story, event_marks, history_frame, points, stories
from .page import Page, Section
from .plots import Lines, Styles
from .runs import SiteRun

PATH = "history.html"
MAX_WORKLOADS, MAX_MARKS = 4, 6
_PAGE_POINTS = 12_000  # drawn on the page, so that it stays far below 5 MB
_SERIES_POINTS = 120  # in one line: more cannot be told apart, and take time to draw
_TITLES = {
    "step_ms": "Step time, ms",
    "tokens_per_step": "Tokens per step",
    "tpot_ms": "TPOT, ms",
    "tps": "Tokens per second",
    "ttft_ms": "TTFT, ms",
    "syncs_per_round": "Synchronisations a round",
}


def history_page(runs: Sequence[SiteRun], accepted: Sequence[Accepted], styles: Styles) -> Page:
    """Runs newest first; experiments are no part of a history."""
    shown, num_cases = stories(points(runs), accepted, MAX_WORKLOADS)
    cases = list(dict.fromkeys(story.series.case for story in shown))
    num_points = max(20, min(_SERIES_POINTS, _PAGE_POINTS // max(len(shown), 1)))
    sections = [
        _workload([s for s in shown if s.series.case == case], n, num_points, styles) for n, case in enumerate(cases)
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
        sections=(*_suspects(shown), *sections, *_changes(runs)),
    )


def steps_table(own: Sequence[Story]) -> ResultTable:
    """Dated steps of a workload, the newest first."""
    steps = [(story.series, step) for story in own for step in story.steps]
    steps.sort(key=lambda found: found[1].after.utc, reverse=True)
    rows = tuple(
        (
            step.after.commit[:12],
            step.after.utc,
            series.metric,
            series.arm,
            signed(step.change),
            f"{step.verdict}{', accepted' * step.accepted}",
            f"{step.before.commit[:12]}..{step.after.commit[:12]}",
        )
        for series, step in steps
    )
    headers = ("since commit", "first run (UTC)", "metric", "strategy", "change", "verdict", "commits between")
    notes = ("PELT over log values of the medians by commit; a machine change starts anew.",)
    return ResultTable(title="Dated steps", headers=headers, rows=rows, notes=notes)


def _workload(own: Sequence[Story], n: int, num_points: int, styles: Styles) -> Section:
    charts = []
    for metric in dict.fromkeys(story.series.metric for story in own):
        mine = [story for story in own if story.series.metric == metric]
        frame = history_frame(mine, num_points)
        charts.append(
            Lines(
                name=f"history-{n + 1}-{metric}".replace("_", "-"),
                title=_TITLES.get(metric, metric),
                description="A point a commit, medians over its runs. Dashed: a step, or another machine.",
                frame=frame,
                x_title="commit, the oldest 1",
                y_title=_TITLES.get(metric, metric),
                styles=styles.of(frame["series"]),
                marks=event_marks(mine, MAX_MARKS),
            )
        )
    most = max(story.num_commits for story in own)
    told = []
    if most > num_points:
        told.append(f"Of {most} commits the newest are drawn, the older ones thinned: {num_points} points a line.")
    searched = max(len(story.series.commits) for story in own)
    if most > searched:
        told.append(f"Steps are looked for in the newest {searched} commits; specbench history show looks in all.")
    steps = steps_table(own)
    if not steps.rows:
        told.append("No step was found.")
    return Section(
        title=own[0].series.case_text,
        sentences=tuple(told),
        charts=tuple(charts),
        tables=(steps,) if steps.rows else (),
    )


def _suspects(shown: Sequence[Story]) -> list[Section]:
    found = [suspect for story in shown for suspect in story.suspects]
    return [Section(title="Suspects", tables=(suspects_table(found, ()),))] if found else []


def _changes(runs: Sequence[SiteRun]) -> list[Section]:
    """Of the runs of each workload, whatever the machine: the machine's changes are what is looked for."""
    ordinary = [run for run in runs if not run.is_experiment]
    table = changes_table(ordinary) if by_case(ordinary) else None
    return [Section(title="Environment changes", tables=(table,))] if table else []
