"""Accuracy of arms: lm-eval's table with a row for each arm and filter, and every arm against the baseline, paired."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from specbench.harness.metrics.accuracy_items import ItemFigures
from specbench.harness.metrics.doubts import is_doubt
from specbench.harness.store.results import ItemPairs, Score, ScorePair
from specbench.reports.cells import NOTHING, formatted, milliseconds, rates, row_name, share, with_interval
from specbench.reports.document import Table, table_of
from specbench.reports.run.accuracy_view import AccuracyView
from specbench.reports.run.view import RunView


def accuracy_tables(view: RunView) -> list[Table]:
    """The two tables of an evaluation; none for a run without one. Arms that failed or are missing are in the notes."""
    if view.accuracy is None:
        return []
    names = {arm.label: row_name(arm) for arm in view.arms}
    tables = [_scores(view, view.accuracy, names)]
    if view.accuracy.pairs:
        tables.append(_pairs(view.accuracy, names))
    return tables


def _scores(view: RunView, accuracy: AccuracyView, names: Mapping[str, str]) -> Table:
    columns: dict[str, Callable[[Score], str]] = {
        "strategy": lambda s: names.get(s.arm, s.arm),
        "Tasks": lambda s: s.task,
        "Version": lambda s: s.version,
        "Filter": lambda s: s.filter,
        "n-shot": lambda s: str(s.num_fewshot),
        "Metric": lambda s: s.metric,
        "Value": lambda s: f"{s.value:.4f}",
        "": lambda s: "±",
        "Stderr": lambda s: formatted(s.stderr, ".4f"),
        "items": lambda s: str(s.n),
    }
    scored = {s.arm for s in accuracy.scores}
    missing = [
        ": ".join(filter(None, (a.label, "not scored", accuracy.errors.get(a.label))))
        for a in view.arms
        if a.label not in scored
    ]
    doubted = [f"{names[a.label]}: {mark}" for a in view.arms for mark in a.marks if is_doubt(mark)]
    notes = (f"lm-eval {accuracy.record.lm_eval}; stderr as lm-eval's", *accuracy.record.notes, *missing, *doubted)
    return table_of(f"Accuracy ({view.record.run_id})", columns, accuracy.scores, notes, spare=("n-shot", "Version"))


def _pairs(accuracy: AccuracyView, names: Mapping[str, str]) -> Table:
    def items_of(pair: ScorePair) -> ItemFigures | None:
        return accuracy.items.get(pair.task, {}).get(pair.arm)

    columns: dict[str, Callable[[ScorePair], str]] = {
        "strategy": lambda p: names.get(p.arm, p.arm),
        "Tasks": lambda p: p.task,
        "Filter": lambda p: p.filter,
        "difference [95% CI]": lambda p: _difference(p.items),
        "won/lost": lambda p: NOTHING if p.items.p is None else f"{p.items.won}/{p.items.lost}",
        "McNemar p": lambda p: formatted(p.items.p, ".2g"),
        "detectable": lambda p: NOTHING if p.items.detectable is None else f"{100 * p.items.detectable:.1f}",
        "same output": lambda p: share(p.items.same_output),
        "AL": lambda p: _acceptance_length(items_of(p)),
        "TPOT ms (x)": lambda p: _tpot(items_of(p)),
    }
    notes = [
        "difference in points over the same items, interval of Agresti and Min 2005; McNemar exact; detectable: the "
        "minimum detectable difference at 80% power and 5% error, given how many items differ.",
        "same output: items answered with the same text; AL and TPOT: of these items, generated after a warm-up, one "
        "arm after the other; (x) over items that both answered, above 1 is faster. It has no interval: each item was "
        "generated once, and nothing shows how one hour differs from the next.",
    ]
    notes += [
        f"{accuracy.baseline}: TPOT {milliseconds(items[accuracy.baseline].tpot_ms)} ms on the items of {task}."
        for task, items in accuracy.items.items()
        if accuracy.baseline in items
    ]
    return table_of(f"Against {accuracy.baseline}, item by item", columns, accuracy.pairs, notes)


def _acceptance_length(items: ItemFigures | None) -> str:
    return rates([items.acceptance_length]) if items else NOTHING


def _tpot(items: ItemFigures | None) -> str:
    if items is None:
        return NOTHING
    text = milliseconds(items.tpot_ms)
    return text if items.tpot_ratio is None else f"{text} ({items.tpot_ratio:.2f}x)"


def _difference(pairs: ItemPairs) -> str:
    low, high = (None, None) if pairs.p is None else (pairs.low, pairs.high)
    return with_interval(lambda value: f"{100 * value:+.1f}", pairs.difference, low, high)
