"""Accuracy of arms: lm-eval's table with a row for each arm and filter, and every arm against the baseline, paired."""

from __future__ import annotations

from collections.abc import Mapping

from specbench.harness.store.results import ItemPairs, ScorePair
from specbench.reports.cells import NOTHING, milliseconds, rates, row_name
from specbench.reports.document import Table
from specbench.reports.run.accuracy_view import AccuracyView, ItemFigures
from specbench.reports.run.view import RunView

_SCORE_HEADERS = ("strategy", "Tasks", "Version", "Filter", "n-shot", "Metric", "Value", "", "Stderr", "items")
_PAIR_HEADERS = (
    "strategy",
    "Tasks",
    "Filter",
    "difference [95% CI]",
    "won/lost",
    "McNemar p",
    "detectable",
    "same output",
    "AL",
    "TPOT ms (x)",
)


def accuracy_tables(view: RunView) -> list[Table]:
    """Two tables of an evaluation, none for a run without one. Arms that failed or are missing stand in the notes."""
    if view.accuracy is None:
        return []
    names = {arm.label: row_name(arm) for arm in view.arms}
    tables = [_scores(view, view.accuracy, names)]
    if view.accuracy.pairs:
        tables.append(_pairs(view.accuracy, names))
    return tables


def _scores(view: RunView, accuracy: AccuracyView, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            names.get(s.arm, s.arm),
            s.task,
            s.version,
            s.filter,
            str(s.num_fewshot),
            s.metric,
            f"{s.value:.4f}",
            "±",
            NOTHING if s.stderr is None else f"{s.stderr:.4f}",
            str(s.n),
        )
        for s in accuracy.scores
    )
    scored = {s.arm for s in accuracy.scores}
    missing = [
        f"{a.label}: not scored{_reason(accuracy.errors.get(a.label))}" for a in view.arms if a.label not in scored
    ]
    notes = (f"lm-eval {accuracy.record.lm_eval}; stderr as lm-eval's", *accuracy.record.notes, *missing)
    return Table(title=f"Accuracy ({view.record.run_id})", headers=_SCORE_HEADERS, rows=rows, notes=notes)


def _reason(error: str | None) -> str:
    return f": {error}" if error else ""


def _pairs(accuracy: AccuracyView, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (names.get(p.arm, p.arm), *_pair_cells(p, accuracy.items.get(p.task, {}).get(p.arm))) for p in accuracy.pairs
    )
    notes = [
        "difference in points over the same items, interval of Agresti and Min 2005; McNemar exact; detectable: the "
        "difference found 4 times of 5 at the 5% level, given how many items differ.",
        "same output: items answered with the same text; AL and TPOT: of these items, generated after a warm-up, one "
        "arm after the other; (x) over items that both answered [95% CI], above 1 is faster.",
    ]
    notes += [
        f"{accuracy.baseline}: TPOT {milliseconds(items[accuracy.baseline].tpot_ms)} ms on the items of {task}."
        for task, items in accuracy.items.items()
        if accuracy.baseline in items
    ]
    title = f"Against {accuracy.baseline}, item by item"
    return Table(title=title, headers=_PAIR_HEADERS, rows=rows, notes=tuple(notes))


def _pair_cells(pair: ScorePair, items: ItemFigures | None) -> tuple[str, ...]:
    found = pair.items
    return (
        pair.task,
        pair.filter,
        _difference(found),
        NOTHING if found.p is None else f"{found.won}/{found.lost}",
        NOTHING if found.p is None else f"{found.p:.2g}",
        NOTHING if found.detectable is None else f"{100 * found.detectable:.1f}",
        NOTHING if found.same_output is None else f"{found.same_output:.1%}",
        rates([items.acceptance_length]) if items else NOTHING,
        _tpot(items) if items else NOTHING,
    )


def _tpot(items: ItemFigures) -> str:
    text = milliseconds(items.tpot_ms)
    if items.tpot_ratio is None:
        return text
    ends = "" if items.tpot_ratio_low is None else f" [{items.tpot_ratio_low:.2f}, {items.tpot_ratio_high:.2f}]"
    return f"{text} ({items.tpot_ratio:.2f}x{ends})"


def _difference(found: ItemPairs) -> str:
    if found.difference is None:
        return NOTHING
    text = f"{100 * found.difference:+.1f}"
    if found.p is None or found.low is None or found.high is None:
        return text
    return f"{text} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
