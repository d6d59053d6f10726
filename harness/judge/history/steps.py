"""Where a series changed (dated steps) and whether its newest points stand out (suspects).

Dated steps: PELT with an absolute-deviation cost (ruptures, model l1, min_size 4, penalty 3 ln n; Killick, Fearnhead
and Eckley 2012) over log values in units of the noise, which is 1.4826 MAD of the differences of neighbours / sqrt(2).
Suspects: newest points outside the robust prediction interval of the segment they follow, while they are too few for a
step. Only a paired rerun of both commits may call a suspect a regression.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its stats take half a second, and are imported at first use

from specbench.harness.judge.history.points import METRICS, Commit, Series
from specbench.harness.stats.verdict import IMPROVED, MIN_EFFECT, REGRESSED

MIN_SIZE = 4
LEVEL = 0.99  # of the prediction interval
_MIN_NOISE = 2e-4  # of log values: constant counts have no noise of their own
_MAD_TO_SD = 1.4826

STEP, MACHINE, DRIVEN, ACCEPTED = "step", "machine changed", "driven differently", "accepted"
INCOMPARABLE = (MACHINE, DRIVEN)  # points before say nothing about points after


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Points [start, end) of a series between two boundaries. `begins`: why it starts: step, machine changed, driven
    differently, accepted, or empty for the first."""

    start: int
    end: int
    median: float
    begins: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DatedStep:
    """A change between two neighbouring commits. `change`: of the segments' medians, a fraction; infinite from 0."""

    before: Commit
    after: Commit
    change: float
    verdict: str
    accepted: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """A newest point that its segment does not predict. low, high: the prediction interval; `reference`: the last
    commit before it that was not an outlier."""

    series: Series
    commit: Commit
    reference: Commit
    expected: float
    low: float
    high: float
    change: float
    verdict: str


def find_segments(series: Series, accepted: Collection[str] = (), min_effect: float = MIN_EFFECT) -> list[Segment]:
    """The series, split where its points cannot be compared, at accepted commits, and at steps of `min_effect` or
    more."""
    commits = series.commits
    forced = _boundaries(commits, accepted)
    edges = [0, *sorted(forced), len(commits)]
    begins = {0: "", **forced}
    for start, end in zip(edges, edges[1:], strict=False):
        begins |= {n: STEP for n in _steps(series.values[start:end], start, min_effect)}
    starts = sorted(begins)
    return [
        Segment(start=start, end=end, median=float(np.median(series.values[start:end])), begins=begins[start])
        for start, end in zip(starts, [*starts[1:], len(commits)], strict=True)
        if end > start
    ]


def dated_steps(series: Series, segments: Sequence[Segment]) -> list[DatedStep]:
    """Changes between neighbouring segments that can be compared, known or found."""
    found = []
    for before, after in zip(segments, segments[1:], strict=False):
        if after.begins in INCOMPARABLE:
            continue
        change = _change(before.median, after.median)
        found.append(
            DatedStep(
                before=series.commits[after.start - 1],
                after=series.commits[after.start],
                change=change,
                verdict=_verdict(series.metric, change),
                accepted=after.begins == ACCEPTED,
            )
        )
    return found


def find_suspects(series: Series, accepted: Collection[str] = (), min_effect: float = MIN_EFFECT) -> list[Suspect]:
    """The newest points, too few for a step, that lie outside the interval of those before them."""
    segments = find_segments(series, accepted, min_effect)
    last = segments[-1]
    first_new = max(last.start + MIN_SIZE, last.end - (MIN_SIZE - 1))
    if first_new >= last.end:
        return []
    expected, low, high = _interval(series.values[last.start : first_new])
    reference = series.commits[first_new - 1]
    found = []
    for n in range(first_new, last.end):
        value = series.commits[n].value
        change = _change(expected, value)
        if low <= value <= high or abs(change) < min_effect:
            reference = series.commits[n]
            continue
        found.append(
            Suspect(
                series=series,
                commit=series.commits[n],
                reference=reference,
                expected=expected,
                low=low,
                high=high,
                change=change,
                verdict=_verdict(series.metric, change),
            )
        )
    return found


def is_named(commit: str, accepted: Collection[str]) -> bool:
    """Whether one of `accepted` is this commit, in full or by prefix; the hash of local changes too (`3f21af4+9c`)."""
    sha, plus, changes = commit.partition("+")
    parts = (name.partition("+") for name in accepted)
    return any(sha.startswith(start) and (plus + changes).startswith(mark + more) for start, mark, more in parts)


def _boundaries(commits: Sequence[Commit], accepted: Collection[str]) -> dict[int, str]:
    """Why a segment starts at these positions, independent of the values. Older runs that do not record how they were
    driven join the others."""
    found, driven = {}, commits[0].driven
    for n in range(1, len(commits)):
        before, now = driven, commits[n].driven
        driven = now or before
        if commits[n].fingerprint != commits[n - 1].fingerprint:
            found[n] = MACHINE
        elif now != before and None not in (now, before):
            found[n] = DRIVEN
        elif is_named(commits[n].commit, accepted):
            found[n] = ACCEPTED
    return found


def _steps(values: np.ndarray, offset: int, min_effect: float) -> list[int]:
    """Where steps start, as positions in the whole series; steps that are too small are merged with their neighbours,
    smallest first."""
    if len(values) < 2 * MIN_SIZE or not values.any():
        return []
    # A count that can be 0 has no log: its changes are relative to the largest.
    logs = np.log(values) if (values > 0).all() else values / values.max()
    margin = math.log1p(min_effect)
    if np.ptp(logs) < margin:
        return []  # no two medians can be that far apart
    from ruptures import Pelt  # takes half a second, for the few series that may have a step

    from specbench.harness.judge.history.absolute_cost import AbsoluteCost

    scaled = (logs - np.median(logs)) / noise(logs)
    search = Pelt(custom_cost=AbsoluteCost(), min_size=MIN_SIZE, jump=1)
    cuts = search.fit(scaled).predict(pen=3 * math.log(len(values)))[:-1]
    cuts = _in_place(logs, cuts)
    while cuts:
        medians = [np.median(segment) for segment in np.split(logs, cuts)]
        sizes = np.abs(np.diff(medians))
        smallest = int(sizes.argmin())
        if sizes[smallest] >= margin:
            break
        del cuts[smallest]
    return [offset + cut for cut in cuts]


def _in_place(logs: np.ndarray, cuts: list[int]) -> list[int]:
    """Moves a cut by the one point of its neighbour that a segment of MIN_SIZE may hold: the search places none three
    points from an end, and would name the wrong commit."""
    medians = [np.median(segment) for segment in np.split(logs, cuts)]
    placed = []
    for cut, before, after in zip(cuts, medians, medians[1:], strict=False):
        is_late = abs(logs[cut - 1] - after) < abs(logs[cut - 1] - before)
        is_early = abs(logs[cut] - before) < abs(logs[cut] - after)
        placed.append(cut + int(is_early) - int(is_late))
    return placed


def noise(logs: np.ndarray) -> float:
    """Standard deviation of one point about its segment, independent of any steps."""
    differences = np.diff(logs)
    mad = float(np.median(np.abs(differences - np.median(differences))))
    return max(_MAD_TO_SD * mad / math.sqrt(2), _MIN_NOISE)


def _interval(values: np.ndarray) -> tuple[float, float, float]:
    """Median of a segment and the interval in which its next point is expected."""
    middle = float(np.median(values))
    spread = _MAD_TO_SD * float(np.median(np.abs(values - middle)))
    half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, max(len(values) - 1, 1))) * spread * math.sqrt(1 + 1 / len(values))
    return middle, middle - half, middle + half


def _change(before: float, after: float) -> float:
    """A fraction; infinite from 0 to anything else."""
    if before:
        return after / before - 1
    return math.inf if after else 0.0


def _verdict(metric: str, change: float) -> str:
    return IMPROVED if (change > 0) == (METRICS[metric].better == "higher") else REGRESSED
