"""Series by commit, from run data that the site has already read: no raw table is opened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from specbench.harness.judge.history.accepted import Accepted, accepted_commits
from specbench.harness.judge.history.points import METRICS, Commit, Point, Series, build_series, points_of
from specbench.harness.judge.history.steps import (
    INCOMPARABLE,
    Segment,
    Suspect,
    dated_steps,
    find_segments,
    find_suspects,
)
from specbench.harness.judge.stored import StoredRun
from specbench.harness.store.schema import Frames
from specbench.reports.cells import arm_name
from specbench.reports.document import Cell
from specbench.reports.experiments.history_table import SegmentedSeries, short_commit

from .runs import SiteRun

MAX_WORKLOADS = 4  # with a history on the site
_MAX_SEARCHED, _MIN_SEARCHED, _NUM_JUDGED = 150, 40, 40
_SEARCH_BUDGET = 300_000  # commits squared, over all series: about 4 s


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesHistory(SegmentedSeries):
    """A series cut to its newest commits, with what happened in it."""

    suspects: Sequence[Suspect]
    older: Sequence[Commit] = ()

    @property
    def commits(self) -> list[Commit]:
        """All commits, oldest first."""
        return [*self.older, *self.series.commits]


def points(runs: Iterable[SiteRun]) -> list[Point]:
    """The points of all runs except experiments, whose sides A and B are not series. Arms are named as in their
    rows."""
    found = []
    for run in runs:
        if run.is_experiment or not run.blocks:
            continue
        names = {arm.label: arm_name(arm) for arm in run.arms}
        found += [replace(point, arm=names.get(point.arm, point.arm)) for point in points_of(_stored(run))]
    return found


def series_histories(
    points: Iterable[Point], accepted: Sequence[Accepted], most: int
) -> tuple[list[SeriesHistory], int]:
    """The series of the `most` newest workloads, in the order of METRICS within each, and the total number of
    workloads. A series has at least two commits. Steps are searched only among the newest commits, as many as the time
    allows."""
    series = [s for s in build_series(points) if len(s.commits) > 1]
    newest_first = sorted(series, key=lambda one: one.commits[-1].utc, reverse=True)
    cases = list(dict.fromkeys(one.case for one in newest_first))
    shown = [s for case in cases[:most] for metric in METRICS for s in series if (s.case, s.metric) == (case, metric)]
    num_searched = num_searched_commits(len(shown))
    return [_history(one, accepted, num_searched) for one in shown], len(cases)


def num_searched_commits(num_series: int) -> int:
    """How many of the newest commits are searched: search time grows with the square of their number."""
    affordable = int(math.sqrt(_SEARCH_BUDGET / max(num_series, 1)))
    return max(_MIN_SEARCHED, min(_MAX_SEARCHED, affordable))


def history_frame(shown: Sequence[SeriesHistory], num_points: int) -> pd.DataFrame:
    """series: arm, x: number of the commit in the workload, y: the metric; at most `num_points` per series: if there
    are more, three quarters are the newest commits and the rest are spread evenly over the older ones."""
    places = commit_places(shown)
    rows = [
        (story.series.arm, places[commit.commit, commit.fingerprint], commit.value)
        + (f"{short_commit(commit.commit)}, {commit.utc}",)
        for story in shown
        for commit in _thinned(story.commits, num_points)
    ]
    return pd.DataFrame(rows, columns=["series", "x", "y", "note"])


def commit_places(shown: Sequence[SeriesHistory]) -> Mapping[tuple[str, str], int]:
    """The number of each commit (on each machine), the oldest 1, over all series of a workload."""
    first: dict[tuple[str, str], str] = {}
    for story in shown:
        for commit in story.commits:
            key = (commit.commit, commit.fingerprint)
            first[key] = min(first.get(key, commit.utc), commit.utc)
    ordered = sorted(first, key=lambda key: (first[key], key))
    return {key: n + 1 for n, key in enumerate(ordered)}


def commit_link(commit: Commit, pages: Mapping[str, str]) -> Cell:
    """To the page of its first run that has one. `pages`: by run id."""
    return Cell(text=short_commit(commit.commit), href=next((pages[i] for i in commit.run_ids if i in pages), ""))


def event_marks(shown: Sequence[SeriesHistory], most: int) -> tuple[tuple[float, str], ...]:
    """The position and label of each vertical line: first where points cannot be compared, then the largest steps."""
    places = commit_places(shown)
    cuts, steps = {}, []
    for story in shown:
        commits = story.series.commits
        for segment in story.segments:
            if segment.begins in INCOMPARABLE:
                first = commits[segment.start]
                cuts[places[first.commit, first.fingerprint]] = segment.begins
        for step in story.steps:
            at = places[step.after.commit, step.after.fingerprint]
            steps.append((abs(step.change), at, f"{step.change:+.1%}" if step.change < math.inf else "from 0"))
    found: dict[float, str] = {}
    for _, at, text in sorted(steps, reverse=True):
        found.setdefault(at, text)
    return tuple(list((cuts | found).items())[:most])


def _stored(run: SiteRun) -> StoredRun:
    empty = pd.DataFrame()
    frames = Frames(requests=empty, steps=empty, phases=empty, counters=empty, logprobs=empty, arms=run.record.arms)
    figures = {block: found.values for block, found in run.blocks.items()}
    return StoredRun(name=run.run_id, path=run.path, record=run.record, frames=frames, figures=figures, failed={})


def _history(series: Series, accepted: Sequence[Accepted], num_searched: int) -> SeriesHistory:
    newest = replace(series, commits=series.commits[-num_searched:])
    known = accepted_commits(list(accepted), series)
    segments = find_segments(newest, known)
    return SeriesHistory(
        series=newest,
        segments=segments,
        steps=dated_steps(newest, segments),
        suspects=find_suspects(_end_of(newest, segments[-1]), known),
        older=series.commits[:-num_searched],
    )


def _end_of(series: Series, last: Segment) -> Series:
    """The newest commits of the last segment, by which a suspect is judged."""
    return replace(series, commits=series.commits[max(last.start, len(series.commits) - _NUM_JUDGED) :])


def _thinned(commits: Sequence[Commit], most: int) -> Sequence[Commit]:
    if len(commits) <= most:
        return commits
    num_newest = most * 3 // 4
    older, num_older = commits[:-num_newest], most - num_newest
    return [*(older[i * len(older) // num_older] for i in range(num_older)), *commits[-num_newest:]]
