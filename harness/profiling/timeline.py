"""The median round as rectangles: ranges and waits of the host, operations of the GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .attribution import NO_PHASE, Attribution
from .record import PHASES, Bar
from .rounds import Rounds
from .waits import Wait

MAX_BARS = 20_000  # a round has hundreds or a few thousand


def timeline(
    a: Attribution, rounds: Rounds, waits: Sequence[Wait], names: NDArray[np.object_]
) -> tuple[tuple[Bar, ...], int]:
    """(bars in the order of rows and times, number of the round). GPU rows show what this round launched, which may run
    while the host is in a later one."""
    step = rounds.median_round()
    bars = [*_host(a, step.index, step.t0), *_waits(waits, step.index, step.t0), *_gpu(a, step.index, step.t0, names)]
    return tuple(bars[:MAX_BARS]), step.number


def _host(a: Attribution, index: int, origin: int) -> list[Bar]:
    """Ranges of the round. That of a segment is shown under its phase; the host's own where it launches several."""
    bars = []
    for number in np.flatnonzero(a.span_round == index).tolist():
        span, draft = a.spans[number], int(a.span_draft[number])
        phase = span.rule.phase or _phase_inside(a, number)
        bars.append(_bar("host", span.range.name, phase, draft, span.t0 - origin, span.t1 - origin))
    return bars


def _phase_inside(a: Attribution, span: int) -> str:
    inside = np.unique(a.phase[a.span == span])
    if len(inside) > 1:
        return "host"
    return PHASES[inside[0]] if len(inside) and inside[0] != NO_PHASE else "other"


def _waits(waits: Sequence[Wait], index: int, origin: int) -> list[Bar]:
    return [
        _bar("sync", f"{w.api} ({w.kind})", w.phase, -1, w.t0 - origin, w.t1 - origin)
        for w in waits
        if w.round == index
    ]


def _gpu(a: Attribution, index: int, origin: int, names: NDArray[np.object_]) -> list[Bar]:
    at = np.flatnonzero(a.round == index)
    several = len(np.unique(a.ops["dev"][at])) > 1
    bars = []
    for i in at[np.lexsort([a.ops["t0"][at], a.ops["stream"][at], a.ops["dev"][at]])].tolist():
        op = a.ops[i]
        row = f"gpu{op['dev']}:{op['stream']}" if several else f"gpu:{op['stream']}"
        phase = PHASES[a.phase[i]] if a.phase[i] != NO_PHASE else "other"
        t0, t1 = int(op["t0"]) - origin, int(op["t1"]) - origin
        bars.append(_bar(row, names[op["name"]], phase, int(a.draft[i]), t0, t1, bool(a.via_graph[i])))
    return bars


def _bar(row: str, name: str, phase: str, draft: int, t0: int, t1: int, via_graph: bool = False) -> Bar:
    return Bar(
        row=row,
        name=name,
        phase=phase,
        draft_step=None if draft < 0 else draft,
        t0_ns=t0,
        t1_ns=t1,
        via_graph=via_graph,
    )
