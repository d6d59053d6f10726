"""The rounds that figures are computed from: complete decode rounds that did work on the GPU."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .attribution import Attribution, place
from .spans import Step
from .trace_db import ApiCall

_LAUNCH = re.compile(r"cu(da)?(GraphLaunch|Launch\w*Kernel)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """`steps`: the analysed ones, in time order; `ops`: their operations, with phase `other` if they have none.
    `num_lost`: launch calls in them without GPU work in the trace. `notes`: remarks about the choice."""

    steps: tuple[Step, ...]
    ops: pd.DataFrame
    num_left_out: int
    num_lost: int
    notes: tuple[str, ...]

    @property
    def num(self) -> int:
        return len(self.steps)

    @property
    def followed(self) -> tuple[Step, ...]:
        """The rounds directly followed by another analysed one, whose length is known. All, if there are none."""
        indices = {s.index for s in self.steps}
        return tuple(s for s in self.steps if s.index + 1 in indices) or self.steps

    def length_ns(self) -> float:
        """Median, start to next start."""
        return float(statistics.median(s.length_ns for s in self.followed))

    @property
    def batch_size(self) -> int | None:
        """From the trace; None also if rounds differ."""
        sizes = {s.batch_size for s in self.steps}
        return sizes.pop() if len(sizes) == 1 else None

    def median_round(self) -> Step:
        """The followed round whose length is closest to the median; the earliest of these."""
        median = self.length_ns()
        return min(self.followed, key=lambda s: (abs(s.length_ns - median), s.index))


def choose_rounds(a: Attribution, calls: Sequence[ApiCall], file: str) -> Rounds:
    """`calls`: of the engine's thread. ValueError if no step did work on the GPU."""
    busy = set(a.ops["round"].unique().tolist())
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
            f"{num_lost} launch calls in the rounds have no GPU work in the trace (empty graphs, or dropped records)"
        )
    if len(whole) < len(chosen):
        notes.append(f"{len(chosen) - len(whole)} steps at the edges of the capture left out as incomplete")
    ops = a.ops[a.ops["round"].isin([s.index for s in whole])]
    return Rounds(
        steps=tuple(whole),
        ops=ops.assign(phase=ops["phase"].fillna("other")),
        num_left_out=len(a.steps) - len(whole),
        num_lost=num_lost,
        notes=tuple(notes),
    )


def unplaced(a: Attribution, rounds: Rounds) -> pd.DataFrame:
    """Operations of the analysed rounds without a phase, and operations outside rounds between the first and the last
    of them. The position is the time of launch; if that is unknown, the GPU's time, which may lag behind the host by
    whole rounds."""
    ops, held = a.ops, rounds.ops
    launched = np.append(a.launches["t0"], 0)[ops["launch"]]
    in_launches = (launched >= rounds.steps[0].t0) & (launched <= rounds.steps[-1].end)
    on_gpu = (ops["t0"] >= held["t0"].min()) & (ops["t1"] <= held["t1"].max())
    between = (ops["round"] < 0) & np.where(ops["launch"] >= 0, in_launches, on_gpu)
    return ops[between | (ops.index.isin(held.index) & ops["phase"].isna())]


def _without_cut_edges(steps: list[Step], lost: Counter[int], cut: set[int]) -> list[Step]:
    """Drops a first or last step that lacks work which the other steps have."""
    if len(steps) < 2:
        return steps
    usual = min(lost[s.index] for s in steps)
    edges = {s.index for s in (steps[0], steps[-1]) if lost[s.index] > usual}
    edges |= {steps[-1].index} & cut
    return [s for s in steps if s.index not in edges] or steps


def _lost_launches(a: Attribution, calls: Sequence[ApiCall]) -> Counter[int]:
    """Launch calls without any operation, by step."""
    launched = np.sort(a.launches["t0"])
    candidates = [c for c in calls if _LAUNCH.match(c.name)]
    t0, t1 = (np.array([getattr(c, name) for c in candidates], dtype=np.int64) for name in ("t0", "t1"))
    after = np.maximum(t1, t0 + 1)  # what begins as the call ends is the next call's
    has_work = np.searchsorted(launched, after, side="left") > np.searchsorted(launched, t0, side="left")
    step = place(a.steps, t0, t1, np.zeros(len(t0), dtype=bool))
    return Counter(step[~has_work & (step >= 0)].tolist())


def _cut_replays(a: Attribution) -> set[int]:
    """Steps whose last replay under some range has fewer operations than all replays under that name before it."""
    graph = a.ops[a.ops["via_graph"] & (a.ops["span"] >= 0) & (a.ops["round"] >= 0)]
    replays = graph.groupby("launch").agg(span=("span", "first"), round=("round", "first"), num=("round", "size"))
    cut = set()
    for _, of_name in replays.groupby([a.spans[span].name for span in replays["span"]]):
        last = of_name["round"].max()
        is_last = of_name["round"] == last
        if of_name["num"][is_last].min() < of_name["num"][~is_last].min():  # NaN, hence false, where all are the last
            cut.add(int(last))
    return cut
