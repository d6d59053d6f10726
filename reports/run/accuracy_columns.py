"""Accuracy in the comparison table: two columns per task, the score and its verdict against the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.store.results import ItemPairs, Score, ScorePair
from specbench.reports.run.accuracy_view import AccuracyView

_PREFERRED_FILTER = "flexible-extract"  # which finds the answer however it is written
Columns = dict[str, dict[str, str]]


def accuracy_columns(view: AccuracyView | None) -> Columns:
    """Cells by header and arm label; an arm without scores has none. Empty for a run without an evaluation."""
    columns: Columns = {}
    for score in _headline(view.scores if view else ()):
        assert view is not None
        same = [s for s in view.scores if _key(s) == _key(score)]
        columns[score.task] = {s.arm: with_stderr(s) for s in same}
        verdicts = {p.arm: verdict(p.items) for p in view.pairs if _key(p) == _key(score)}
        columns[f"{score.task}: paired"] = {view.baseline: "baseline"} | verdicts
    for label in view.errors if view else ():
        for cells in columns.values():
            cells.setdefault(label, "not scored")
    return columns


def accuracy_conventions(view: AccuracyView | None) -> list[str]:
    """How to read the columns; substitutions are in the notes of the score table."""
    if view is None:
        return []
    lines = [
        f"{s.task}: {s.metric}{_filter(s)} ± standard error over {s.n} items, {s.num_fewshot}-shot, "
        f"decoded as the task says; paired: exact McNemar against {view.baseline!r} on the same items."
        for s in _headline(view.scores)
    ]
    if view.is_alone:
        lines.append("an evaluation: its repeats are batches of different items, one arm after the other.")
    elif lines:
        lines.append("these items are in no speed or acceptance figure of this table.")
    return lines


def with_stderr(score: Score) -> str:
    """`0.7740 ± 0.0187`."""
    return f"{score.value:.4f}" + ("" if score.stderr is None else f" ± {score.stderr:.4f}")


def verdict(pair: ItemPairs) -> str:
    """`p=0.69 (5 won, 3 lost)`, or words if there is nothing to test."""
    if pair.same_output == 1:
        return "same text"
    if pair.p is None or pair.won is None or pair.lost is None:
        return "-" if pair.difference is None else f"{pair.difference:+.4g}"
    if pair.won + pair.lost == 0:
        return "same items right"
    return f"p={pair.p:.2g} ({pair.won} won, {pair.lost} lost)"


def _headline(scores: Sequence[Score]) -> list[Score]:
    """The first score of each task, from the preferred filter if there is one."""
    chosen: dict[str, Score] = {}
    for score in scores:
        kept = chosen.setdefault(score.task, score)
        if score.filter == _PREFERRED_FILTER != kept.filter:
            chosen[score.task] = score
    return list(chosen.values())


def _filter(score: Score) -> str:
    return "" if score.filter == "none" else f" ({score.filter})"


def _key(row: Score | ScorePair) -> tuple[str, ...]:
    return row.task, row.filter, row.metric
