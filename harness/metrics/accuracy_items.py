"""Acceptance and speed of an evaluation's items, separate from any timed block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench.harness.metrics.acceptance import acceptance_metrics
from specbench.harness.metrics.latency import measured, tpot_by_request_ms
from specbench.harness.store.results import Acceptance
from specbench.harness.store.schema import Frames


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemFigures:
    """An arm over the items of one task.

    `tpot_ratio`: exp of the mean over items of log(baseline TPOT / arm TPOT); above 1 the arm is faster. None if
    nothing pairs. It has no interval, because each item is generated once.
    """

    acceptance_length: float | None
    tpot_ms: float | None
    tpot_ratio: float | None
    num_pairs: int


def item_figures(frames: Frames, baseline: str) -> dict[str, dict[str, ItemFigures]]:
    """By task, then arm: an item's key starts with the name of its task, see the lm-eval model."""
    requests = measured(frames.requests)
    tasks = requests["prompt_id"].str.rsplit("/", n=2).str[0]
    return {str(task): _by_arm(rows, frames.steps, baseline) for task, rows in requests.groupby(tasks, sort=False)}


def _by_arm(requests: pd.DataFrame, steps: pd.DataFrame, baseline: str) -> dict[str, ItemFigures]:
    keys = ["arm", "repeat", "request_id"]
    steps = steps.merge(requests[[*keys, "prompt_id"]], on=keys)
    by_arm = {str(arm): rows for arm, rows in requests.groupby("arm", sort=False)}
    tpot_ms = {arm: _tpot_by_item_ms(rows) for arm, rows in by_arm.items()}
    return {
        arm: _figures(
            acceptance_metrics(rows, steps[steps["arm"] == arm], cluster="prompt_id"),
            tpot_ms[arm],
            tpot_ms.get(baseline) if arm != baseline else None,
        )
        for arm, rows in by_arm.items()
    }


def _tpot_by_item_ms(requests: pd.DataFrame) -> pd.Series:
    """By item key, regardless of the batch that generated it."""
    rows = requests.reset_index(drop=True)
    tpot_ms = tpot_by_request_ms(rows)
    return tpot_ms.set_axis(rows.loc[tpot_ms.index, "prompt_id"])


def _figures(acceptance: Acceptance, tpot_ms: pd.Series, baseline_ms: pd.Series | None) -> ItemFigures:
    """Pairs are the items that both sides answered with two tokens or more."""
    base_ms = tpot_ms.iloc[:0] if baseline_ms is None else baseline_ms
    both = pd.concat([base_ms, tpot_ms], axis=1, join="inner", keys=["base", "arm"])
    both = both[(both > 0).all(axis=1)]
    logs = np.log(both["base"] / both["arm"])
    return ItemFigures(
        acceptance_length=acceptance.acceptance_length,
        tpot_ms=None if tpot_ms.empty else float(tpot_ms.mean()),
        tpot_ratio=float(np.exp(logs.mean())) if len(logs) else None,
        num_pairs=len(logs),
    )
