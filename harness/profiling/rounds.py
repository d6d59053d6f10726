"""The rounds that figures are drawn from: whole decode rounds that did work on the GPU."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .attribution import NO_PHASE, Attribution, place
from .spans import Step
from .trace_db import ApiCall

_LAUNCH = re.compile(r"cu(da)?(GraphLaunch|Launch\w*Kernel)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """`steps`: the analysed ones, in time order. `num_lost`: launch calls in them that left no work in the trace.
    `notes`: what a reader must know about the choice."""

    steps: tuple[Step, ...]
    num_left_out: int
    num_lost: int
    notes: tuple[str, ...]

    @property
    def num(self) -> int:
        return len(self.steps)

    @property
    def followed(self) -> tuple[Step, ...]:
        """Those directly followed by another analysed one: only their length is known. All, if there are none."""
        indices = {s.index for s in self.steps}
        return tuple(s for s in self.steps if s.index + 1 in indices) or self.steps

    def length_ns(self) -> float:
        """Median, start to next start."""
        return float(statistics.median(s.length_ns for s in self.followed))

    def median_round(self) -> Step:
        """The followed round whose length is nearest to the median; the earliest of these."""
        median = self.length_ns()
        return min(self.followed, key=lambda s: (abs(s.length_ns - median), s.index))

    def holds(self, round_of: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Where a column of step indices names an analysed round."""
        return np.isin(round_of, [s.index for s in self.steps])


def choose_rounds(a: Attribution, calls: Sequence[ApiCall], file: str) -> Rounds:
    """`calls`: of the engine's thread. ValueError where no step did work on the GPU."""
    busy = set(np.unique(a.round[a.round >= 0]).tolist())
    worked = [s for s in a.steps if s.index in busy]
    if not worked:
        raise ValueError(
            f"trace: none of the {len(a.steps)} steps in {file} launched GPU work on their thread; were the ranges "
            "those of another process or thread?"
        )
    decode = [s for s in worked if s.kind == "decode"]
    notes = []
    chosen = decode or worked
    if not decode:
        notes.append("no decode round in the trace: figures are those of steps with prompt rows")
    elif len(decode) < len(worked):
        notes.append(f"{len(worked) - len(decode)} steps with prompt rows left out")
    whole = [s for s in chosen if s.is_whole] or chosen
    lost = _lost_launches(a, calls)
    whole = _without_cut_edges(whole, lost, _cut_replays(a))
    num_lost = sum(lost[s.index] for s in whole)
    if num_lost:
        notes.append(
            f"{num_lost} launch calls in the rounds left no work in the trace (empty graphs, or dropped records)"
        )
    if len(whole) < len(chosen):
        notes.append(f"{len(chosen) - len(whole)} steps at the edges of the capture left out as incomplete")
    return Rounds(steps=tuple(whole), num_left_out=len(a.steps) - len(whole), num_lost=num_lost, notes=tuple(notes))


def unplaced(a: Attribution, rounds: Rounds) -> NDArray[np.bool_]:
    """Operations of the analysed rounds in no phase, and those of no round between the first and the last of them.

    Between by the time of launch; where that is unknown, by the GPU's, which may lag behind the host by whole rounds.
    """
    held, ops = rounds.holds(a.round), a.ops
    launched = np.append(a.launches["t0"], 0)[ops["launch"]]
    in_launches = (launched >= rounds.steps[0].t0) & (launched <= rounds.steps[-1].end)
    on_gpu = (ops["t0"] >= ops["t0"][held].min()) & (ops["t1"] <= ops["t1"][held].max())
    between = (a.round < 0) & np.where(ops["launch"] >= 0, in_launches, on_gpu)
    return between | (held & (a.phase == NO_PHASE))


def _without_cut_edges(steps: list[Step], lost: defaultdict[int, int], cut: set[int]) -> list[Step]:
    """Without a first or last step that lacks work which the other steps have."""
    if len(steps) < 2:
        return steps
    usual = min(lost[s.index] for s in steps)
    edges = {s.index for s in (steps[0], steps[-1]) if lost[s.index] > usual}
    edges |= {steps[-1].index} & cut
    return [s for s in steps if s.index not in edges] or steps


def _lost_launches(a: Attribution, calls: Sequence[ApiCall]) -> defaultdict[int, int]:
    """Launch calls without any operation, by step."""
    launched = np.sort(a.launches["t0"])
    found: defaultdict[int, int] = defaultdict(int)
    candidates = [c for c in calls if _LAUNCH.match(c.name)]
    t0 = np.array([c.t0 for c in candidates], dtype=np.int64)
    t1 = np.array([c.t1 for c in candidates], dtype=np.int64)
    after = np.maximum(t1, t0 + 1)  # what begins as the call ends is the next call's
    has_work = np.searchsorted(launched, after, side="left") > np.searchsorted(launched, t0, side="left")
    step = place(a.steps, t0, t1, np.zeros(len(t0), dtype=bool))
    for index in step[~has_work & (step >= 0)].tolist() if len(t0) else ():
        found[index] += 1
    return found


def _cut_replays(a: Attribution) -> set[int]:
    """Steps whose last replay under some range has fewer operations than all replays under that name before it."""
    graph = np.flatnonzero(a.via_graph & (a.span >= 0) & (a.round >= 0))
    if not len(graph):
        return set()
    launches, first, counts = np.unique(a.ops["launch"][graph], return_index=True, return_counts=True)
    by_name: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, count in zip(graph[first].tolist(), counts.tolist(), strict=True):
        by_name[a.spans[a.span[at]].range.name].append((int(a.round[at]), count))
    cut = set()
    for replays in by_name.values():
        last = max(index for index, _ in replays)
        others = [count for index, count in replays if index != last]
        if others and min(count for index, count in replays if index == last) < min(others):
            cut.add(last)
    return cut
