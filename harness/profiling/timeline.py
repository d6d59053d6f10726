"""The median round as rectangles: ranges and waits of the host, operations of the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from .attribution import Attribution
from .phase_figures import draft_step
from .record import Bar
from .rounds import Rounds
from .waits import Wait

MAX_BARS = 20_000  # a round has hundreds or a few thousand


def timeline(a: Attribution, rounds: Rounds, waits: Sequence[Wait]) -> tuple[tuple[Bar, ...], int]:
    """(bars in the order of rows and times, number of the round). GPU rows show what this round launched, which may run
    while the host is already in a later round."""
    step = rounds.median_round()
    ops = rounds.ops[rounds.ops["round"] == step.index]
    bars = [*_host(a, ops, step.index), *_waits(waits, step.index), *_gpu(ops)]
    shifted = (replace(bar, t0_ns=bar.t0_ns - step.t0, t1_ns=bar.t1_ns - step.t0) for bar in bars[:MAX_BARS])
    return tuple(shifted), step.number


def _host(a: Attribution, ops: pd.DataFrame, index: int) -> Iterator[Bar]:
    """Ranges of the round. A segment's range is shown under its phase, or as the host's own if it launches several
    phases."""
    for number in np.flatnonzero(a.span_round == index).tolist():
        span = a.spans[number]
        inside = ops["phase"][ops["span"] == number].unique().tolist()
        phase = span.rule.phase or ("host" if len(inside) > 1 else inside[0] if inside else "other")
        yield _bar("host", span.name, phase, int(a.span_draft[number]), span.t0, span.t1)


def _waits(waits: Sequence[Wait], index: int) -> Iterator[Bar]:
    for w in waits:
        if w.round == index:
            yield _bar("sync", f"{w.api} ({w.kind})", w.phase, -1, w.t0, w.t1)


def _gpu(ops: pd.DataFrame) -> Iterator[Bar]:
    several = ops["dev"].nunique() > 1
    for op in ops.sort_values(["dev", "stream", "t0"], kind="stable").itertuples():
        row = f"gpu{op.dev}:{op.stream}" if several else f"gpu:{op.stream}"
        yield _bar(row, op.name, op.phase, op.draft, op.t0, op.t1, op.via_graph)


def _bar(row: str, name: str, phase: str, draft: int, t0: int, t1: int, via_graph: bool = False) -> Bar:
    return Bar(row=row, name=name, phase=phase, draft_step=draft_step(draft), t0_ns=t0, t1_ns=t1, via_graph=via_graph)
