"""Accuracy figures from the rows of `accuracy.parquet`: scores with standard errors, and arms paired item by item."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy  # its stats take half a second, and are imported at first use

from specbench.harness.stats.paired import paired as paired_t
from specbench.harness.store.results import AccuracyFigures, ItemPairs, Score, ScorePair
from specbench.workloads.guarded import read_parquet

TABLE = "accuracy.parquet"
DIRECTION = "higher_is_better"
ACCURACY_SCHEMA = pa.schema(
    [
        ("arm", pa.string()),
        ("task", pa.string()),
        ("item", pa.int64()),
        ("filter", pa.string()),
        ("metric", pa.string()),
        ("version", pa.string()),
        ("num_fewshot", pa.int32()),
        ("value", pa.float64()),
        ("output_sha256", pa.string()),
        ("num_output_tokens", pa.int32()),  # null if nothing was generated
        (DIRECTION, pa.bool_()),  # of an item's value; null if lm-eval does not say
    ]
)
TASK_KEYS = ["task", "version", "filter", "num_fewshot", "metric"]
_Z_95 = 1.959964
_Z_POWER_80 = 0.841621


def read_accuracy(directory: Path) -> pd.DataFrame:
    """The rows of a run directory's `accuracy.parquet`; empty if there is no such file.

    Rows from before the direction of a metric was recorded do not have it. ValueError for a file that is damaged or has
    other columns.
    """
    file = directory / TABLE
    if not file.is_file():
        return ACCURACY_SCHEMA.empty_table().to_pandas()
    try:
        rows = read_parquet(file)
        if DIRECTION not in rows.column_names:
            rows = rows.append_column(DIRECTION, pa.nulls(len(rows), pa.bool_()))
        return rows.select(ACCURACY_SCHEMA.names).cast(ACCURACY_SCHEMA).to_pandas()
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise ValueError(f"{file}: damaged ({error}); remove it and evaluate again") from error


def accuracy_figures(rows: pd.DataFrame, baseline: str) -> AccuracyFigures:
    """`scores`: one entry per arm, task, filter and metric; `pairs`: every other arm against `baseline`.

    `rows` has the columns of ACCURACY_SCHEMA. Values are fractions; `stderr` is s / sqrt(n), as in lm-eval for means.
    Items without a score (nan) are left out, as in the gate: `n` counts the others.
    """
    rows = rows[np.isfinite(rows["value"].astype(float))]
    scores = [_score(group["value"], *key) for key, group in rows.groupby(["arm", *TASK_KEYS], sort=False)]
    pairs: list[ScorePair] = []
    for key, group in rows.groupby(TASK_KEYS, sort=False):
        by_arm = dict(tuple(group.groupby("arm", sort=False)))
        if baseline in by_arm:
            named = dict(zip(TASK_KEYS, key, strict=True))
            pairs += [
                ScorePair(arm=arm, baseline=baseline, **named, items=paired(by_arm[baseline], own))
                for arm, own in by_arm.items()
                if arm != baseline
            ]
    return AccuracyFigures(scores=tuple(scores), pairs=tuple(pairs))


def _score(values: pd.Series, arm: str, task: str, version: str, filter: str, num_fewshot: int, metric: str) -> Score:
    n = len(values)
    return Score(
        arm=arm,
        task=task,
        version=version,
        filter=filter,
        num_fewshot=int(num_fewshot),
        metric=metric,
        value=float(values.mean()),
        stderr=float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else None,
        n=n,
    )


def paired(baseline: pd.DataFrame, arm: pd.DataFrame) -> ItemPairs:
    """Exact McNemar and the difference over the items that both answered.

    Values other than 0 and 1 have no McNemar (`p` is None), but the paired t interval of their difference if there are
    at least two items. `p_test`: of either test. The interval is Agresti and Min's (Statistics in Medicine 24, 2005):
    half an item is added to each of the four cells, so the interval does not shrink to nothing if no item differs.
    `detectable` is the difference that this sample would detect with 80% power at the 5% level, given how many items
    differ (normal approximation).
    """
    both = baseline.merge(arm, on="item", suffixes=("_base", "_arm"))
    n = len(both)
    if n == 0:
        return ItemPairs(n=0)
    same = float((both["output_sha256_base"] == both["output_sha256_arm"]).mean())
    difference = float((both["value_arm"] - both["value_base"]).mean())
    found = ItemPairs(n=n, same_output=same, difference=difference)
    if not both[["value_base", "value_arm"]].isin([0.0, 1.0]).all(axis=None):
        change = (both["value_arm"] - both["value_base"]).to_numpy(dtype=float)
        interval = paired_t(change) if n >= 2 else None
        if interval is None:
            return found
        return replace(found, low=float(interval.low), high=float(interval.high), p_test=float(interval.p))
    won = int((both["value_arm"] > both["value_base"]).sum())
    lost = int((both["value_arm"] < both["value_base"]).sum())
    return replace(mcnemar(won, lost, n), same_output=same, difference=difference)


def mcnemar(won: int, lost: int, n: int) -> ItemPairs:
    """The result for `won` and `lost` items among `n` paired ones; see `paired`."""
    p = float(scipy.stats.binomtest(won, won + lost, 0.5).pvalue) if won + lost else 1.0
    middle = (won - lost) / (n + 2)
    half = _Z_95 * math.sqrt(won + lost + 1 - (won - lost) ** 2 / (n + 2)) / (n + 2)
    detectable = (_Z_95 + _Z_POWER_80) * math.sqrt((won + lost + 1) / (n + 2) / n)
    return ItemPairs(
        n=n, won=won, lost=lost, p=p, p_test=p, low=middle - half, high=middle + half, detectable=min(1.0, detectable)
    )
