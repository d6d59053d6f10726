"""Why the GPU is idle: the gaps between operations, classified by the operation after each gap.

host-late: its launch call began after the gap did. back-to-back: under 2 us, the hardware's turn-around time.
launch-latency-or-dependency: it was launched in time and still began late.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .attribution import Attribution
from .record import IdleFigures
from .rounds import Rounds

CAUSES = ("host-late", "launch-latency-or-dependency", "back-to-back")
BACK_TO_BACK_NS = 2000


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times at which no operation ran on the device, in time order; `cause`: number in CAUSES."""

    t0: NDArray[np.int64]
    t1: NDArray[np.int64]
    cause: NDArray[np.int64]

    def within(self, t0: int, t1: int) -> NDArray[np.int64]:
        """Idle ns by cause between two times."""
        first, last = np.searchsorted(self.t1, t0, side="right"), np.searchsorted(self.t0, t1, side="left")
        some = slice(first, max(first, last))
        length = np.minimum(self.t1[some], t1) - np.maximum(self.t0[some], t0)
        return np.bincount(self.cause[some], weights=length, minlength=len(CAUSES)).astype(np.int64)


def main_device(a: Attribution) -> int:
    """The device with the most busy time."""
    return int(a.ops.groupby("dev")["own_ns"].sum().idxmax())


def find_gaps(a: Attribution, device: int) -> Gaps:
    ops = a.ops[a.ops["dev"] == device]
    before, starts = np.maximum.accumulate(ops["t1"].to_numpy())[:-1], ops["t0"].to_numpy()[1:]
    is_gap = starts > before
    t0, t1 = before[is_gap], starts[is_gap]
    launched = np.append(a.launches["t0"], np.iinfo(np.int64).min)[ops["launch"].to_numpy()[1:][is_gap]]
    cause = np.where(launched > t0, 0, np.where(t1 - t0 < BACK_TO_BACK_NS, 2, 1))
    return Gaps(t0=t0, t1=t1, cause=cause)


def idle_figures(a: Attribution, rounds: Rounds) -> tuple[IdleFigures, float]:
    """Idle time per round; and the busy share of the rounds' time on the device."""
    device = main_device(a)
    ops, gaps = rounds.ops[rounds.ops["dev"] == device], find_gaps(a, device)
    spans = _windows(ops, rounds)
    of_rounds = [gaps.within(t0, t1) for t0, t1 in spans]
    by_cause = sum(of_rounds, np.zeros(len(CAUSES), dtype=np.int64))
    length = sum(max(0, t1 - t0) for t0, t1 in spans)
    crossings = _verify_to_draft(ops)
    inside = [gaps.within(t0, t1) for t0, t1 in crossings]
    num = max(1, len(spans))
    figures = IdleFigures(
        total_ns=float(by_cause.sum()) / num,
        by_cause_ns=_named(by_cause / num),
        verify_to_draft_span_ns=float(statistics.median(t1 - t0 for t0, t1 in crossings)) if crossings else None,
        verify_to_draft_idle_ns=float(statistics.median(int(i.sum()) for i in inside)) if crossings else None,
        verify_to_draft_by_cause_ns=_named(np.mean(inside, axis=0)) if crossings else {},
        num_overlapped=sum(t1 < t0 for t0, t1 in crossings),
        by_round_ns=tuple(float(each.sum()) for each in of_rounds),
        verify_to_draft_by_round_ns=tuple(float(each.sum()) for each in inside),
    )
    return figures, 1 - float(by_cause.sum()) / length if length else 0.0


def _named(values: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(CAUSES, values.tolist(), strict=True))


def _windows(ops: pd.DataFrame, rounds: Rounds) -> list[tuple[int, int]]:
    """Each followed round on the device: from its first operation to the first one of the next round, or to its own
    last end if no analysed round follows it."""
    by_round, analysed = ops.groupby("round"), {s.index for s in rounds.steps}
    first, last = by_round["t0"].min().to_dict(), by_round["t1"].max().to_dict()
    return [
        (first[s.index], first[s.index + 1] if s.index + 1 in analysed else last[s.index])
        for s in rounds.followed
        if s.index in first and (s.index + 1 not in analysed or s.index + 1 in first)
    ]


def _verify_to_draft(ops: pd.DataFrame) -> list[tuple[int, int]]:
    """(end of verify's last operation, start of the drafter's first) of each round that has both.

    Drafts that began before verification are the ones it verifies: SGLang's step drafts first.
    """
    verify = ops[ops["phase"] == "verify"].groupby("round")
    drafts = ops[ops["phase"] == "draft"]
    behind = drafts[drafts["t0"] >= drafts["round"].map(verify["t0"].min())]
    both = pd.concat([verify["t1"].max(), behind.groupby("round")["t0"].min()], axis=1, join="inner").sort_index()
    return list(both.itertuples(index=False, name=None))
