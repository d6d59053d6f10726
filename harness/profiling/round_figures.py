"""Figures of each round, from which confidence intervals are computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from .record import LATE, RoundFigures
from .rounds import Rounds
from .trace_db import KERNEL
from .waits import Wait


def round_figures(rounds: Rounds, waits: Sequence[Wait]) -> RoundFigures:
    ops, indices = rounds.ops, [step.index for step in rounds.steps]
    is_eager = (ops["kind"] == KERNEL) & ~ops["via_graph"] & (ops["launch"] >= 0)
    eager = ops[is_eager].groupby("round")["launch"].nunique()
    graphs = ops.groupby("round")["opens_replay"].sum()
    frame = pd.DataFrame(
        {
            "round": [w.round for w in waits],
            "ns": [w.t1 - w.t0 for w in waits],
            "late": np.array([w.kind == LATE for w in waits], dtype=bool),
        }
    )
    counted, late = frame[~frame["late"]], frame[frame["late"]]

    def by_round(values: pd.Series) -> tuple[float, ...]:
        return tuple(values.reindex(indices, fill_value=0).astype(float).tolist())

    graph_launches = by_round(graphs)
    return RoundFigures(
        round_ns=tuple(float(step.length_ns) for step in rounds.followed),
        gpu_busy_ns=by_round(ops.groupby("round")["own_ns"].sum()),
        launches=tuple(sum(pair) for pair in zip(by_round(eager), graph_launches, strict=True)),
        graph_launches=graph_launches,
        syncs=by_round(counted.groupby("round").size()),
        wait_ns=by_round(counted.groupby("round")["ns"].sum()),
        late_wait_ns=by_round(late.groupby("round")["ns"].sum()),
    )
