"""Accuracy of a stored run, from its raw rows: scores, arms paired item by item, acceptance and speed of the items."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench.harness.metrics.acceptance import acceptance_metrics
from specbench.harness.metrics.accuracy import ACCURACY_SCHEMA, accuracy_figures
from specbench.harness.metrics.latency import tpot_by_request_ms
from specbench.harness.registry import BASELINE
from specbench.harness.stats.spread import mean_interval
from specbench.harness.store.evaluation_record import EvaluationRecord
from specbench.harness.store.results import Acceptance, Score, ScorePair
from specbench.harness.store.run_directory import FILE, RunDirectory
from specbench.harness.store.safe_paths import path_inside
from specbench.harness.store.schema import FAILED_ARM_REQUEST_ID, Frames

TABLE = "accuracy.parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemFigures:
    """An arm over the items of one task, apart from any timed block. `tpot_ratio`: exp of the mean over items of
    log(baseline TPOT / arm TPOT), with its interval; above 1 the arm is faster. None where nothing pairs."""

    acceptance_length: float | None
    tpot_ms: float | None
    tpot_ratio: float | None
    tpot_ratio_low: float | None
    tpot_ratio_high: float | None
    num_pairs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyView:
    """`record`: of the evaluation; `scores` and `pairs` as `accuracy_figures` gives them; `items` by
    task, then arm, for tasks that generate; `errors` by arm. `is_alone`: the run is nothing but an evaluation."""

    record: EvaluationRecord
    baseline: str
    scores: tuple[Score, ...]
    pairs: tuple[ScorePair, ...]
    items: Mapping[str, Mapping[str, ItemFigures]]
    errors: Mapping[str, str]
    is_alone: bool


def view_accuracy(directory: RunDirectory) -> AccuracyView | None:
    """None for a run that has no scores (yet), and no arm that failed to get any."""
    record = directory.record.purpose.evaluation
    if record is None:
        return None
    folder = path_inside(directory.path, record.items, f"{directory.path / FILE}: evaluation.items")
    if not (folder / FILE).exists():
        return None
    items = RunDirectory.open(folder)
    errors = {arm.label: arm.error for arm in items.record.arms if arm.error}
    file = directory.path / TABLE
    if not file.exists() and not errors:
        return None
    rows = pd.read_parquet(file) if file.exists() else ACCURACY_SCHEMA.empty_table().to_pandas()
    arms = items.record.arms
    baseline = next((arm.label for arm in arms if arm.strategy == BASELINE), arms[0].label)
    figures = accuracy_figures(rows, baseline)
    return AccuracyView(
        record=record,
        baseline=baseline,
        scores=figures.scores,
        pairs=figures.pairs,
        items=_by_task(items.frames(), baseline),
        errors=errors,
        is_alone=folder == directory.path,
    )


def _by_task(frames: Frames, baseline: str) -> dict[str, dict[str, ItemFigures]]:
    """Figures by task and arm: an item's key begins with its task's name, see the lm-eval model."""
    requests = frames.requests[frames.requests["request_id"] != FAILED_ARM_REQUEST_ID]
    keys = ["arm", "repeat", "request_id"]
    found = {}
    for task, own in requests.groupby(requests["prompt_id"].str.rsplit("/", n=2).str[0], sort=False):
        tpot_ms = {str(arm): _tpot_by_item_ms(rows) for arm, rows in own.groupby("arm", sort=False)}
        steps = frames.steps.merge(own[[*keys, "prompt_id"]], on=keys)
        found[str(task)] = {
            arm: _figures(
                acceptance_metrics(own[own["arm"] == arm], steps[steps["arm"] == arm], cluster="prompt_id"),
                times_ms,
                tpot_ms.get(baseline) if arm != baseline else None,
            )
            for arm, times_ms in tpot_ms.items()
        }
    return found


def _tpot_by_item_ms(requests: pd.DataFrame) -> pd.Series:
    """By item's key, whichever batch it was generated in."""
    own = requests.reset_index(drop=True)
    found = tpot_by_request_ms(own)
    return found.set_axis(own.loc[found.index, "prompt_id"])


def _figures(acceptance: Acceptance, own: pd.Series, base: pd.Series | None) -> ItemFigures:
    logs = _log_ratios(own, base) if base is not None else own.iloc[:0]
    interval = mean_interval(logs)
    return ItemFigures(
        acceptance_length=acceptance.acceptance_length,
        tpot_ms=None if own.empty else float(own.mean()),
        tpot_ratio=float(np.exp(logs.mean())) if len(logs) else None,
        tpot_ratio_low=math.exp(interval.low) if interval else None,
        tpot_ratio_high=math.exp(interval.high) if interval else None,
        num_pairs=len(logs),
    )


def _log_ratios(own: pd.Series, base: pd.Series) -> pd.Series:
    """Of the items that both answered with two tokens or more."""
    both = pd.concat([base, own], axis=1, join="inner", keys=["base", "own"])
    both = both[(both > 0).all(axis=1)]
    return (both["base"] / both["own"]).map(math.log)
