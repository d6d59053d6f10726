"""Accuracy of a stored run, from its raw rows: scores, arms paired item by item, acceptance and speed of the items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench.harness.metrics.accuracy import TABLE, accuracy_figures, read_accuracy
from specbench.harness.metrics.accuracy_items import ItemFigures, item_figures
from specbench.harness.registry import BASELINE
from specbench.harness.store.evaluation_record import EvaluationRecord
from specbench.harness.store.results import Score, ScorePair
from specbench.harness.store.run_directory import FILE, RunDirectory
from specbench.harness.store.safe_paths import path_inside


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyView:
    """`record`: of the evaluation; `scores` and `pairs` as `accuracy_figures` gives them; `items` by task, then arm,
    for generation tasks; `errors` by arm. `is_alone`: whether the run is only an evaluation."""

    record: EvaluationRecord
    baseline: str
    scores: tuple[Score, ...]
    pairs: tuple[ScorePair, ...]
    items: Mapping[str, Mapping[str, ItemFigures]]
    errors: Mapping[str, str]
    is_alone: bool


def view_accuracy(directory: RunDirectory) -> AccuracyView | None:
    """None for a run that has no scores yet and no arm that failed to get any."""
    record = directory.record.evaluation
    if record is None:
        return None
    folder = path_inside(directory.path, record.items, f"{directory.path / FILE}: evaluation.items")
    if not (folder / FILE).exists():
        return None
    items = RunDirectory.open(folder)
    errors = {arm.label: arm.error for arm in items.record.arms if arm.error}
    if not (directory.path / TABLE).exists() and not errors:
        return None
    arms = items.record.arms
    baseline = next((arm.label for arm in arms if arm.strategy == BASELINE), arms[0].label)
    figures = accuracy_figures(read_accuracy(directory.path), baseline)
    return AccuracyView(
        record=record,
        baseline=baseline,
        scores=figures.scores,
        pairs=figures.pairs,
        items=item_figures(items.frames(), baseline),
        errors=errors,
        is_alone=folder == directory.path,
    )
