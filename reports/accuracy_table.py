"""Accuracy of arms: lm-eval's table with a row for each arm and filter, and every arm against the baseline, paired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.reports.accuracy_view import AccuracyView, ItemFigures
from specbench.reports.cells import NOTHING, milliseconds, row_name, with_interval
from specbench.reports.result_table import ResultTable
from specbench.reports.view import RunView

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


def accuracy_tables(view: RunView) -> list[ResultTable]:
    """Two tables of an evaluation, none for a run without one. Arms that failed or are missing stand in the notes."""
    if view.accuracy is None:
        return []
    names = {arm.label: row_name(arm) for arm in view.arms}
    tables = [_scores(view, view.accuracy, names)]
    if view.accuracy.pairs:
        tables.append(_pairs(view.accuracy, names))
    return tables


def _scores(view: RunView, accuracy: AccuracyView, names: Mapping[str, str]) -> ResultTable:
    rows = tuple(
        (
            names.get(s["arm"], s["arm"]),
            s["task"],
            s["version"],
            s["filter"],
            str(s["num_fewshot"]),
            s["metric"],
            f"{s['value']:.4f}",
            "±",
            NOTHING if s["stderr"] is None else f"{s['stderr']:.4f}",
            str(s["n"]),
        )
        for s in accuracy.scores
    )
    scored = {s["arm"] for s in accuracy.scores}
    missing = [
        f"{a.label}: not scored{_reason(accuracy.errors.get(a.label))}" for a in view.arms if a.label not in scored
    ]
    notes = (f"lm-eval {accuracy.record['lm_eval']}; stderr as lm-eval's", *accuracy.record["notes"], *missing)
    return ResultTable(title=f"Accuracy ({view.manifest['run_id']})", headers=_SCORE_HEADERS, rows=rows, notes=notes)


def _reason(error: str | None) -> str:
    return f": {error}" if error else ""


def _pairs(accuracy: AccuracyView, names: Mapping[str, str]) -> ResultTable:
    rows = tuple(
        (names.get(p["arm"], p["arm"]), *_pair_cells(p, accuracy.items.get(p["task"], {}).get(p["arm"])))
        for p in accuracy.pairs
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
    return ResultTable(title=title, headers=_PAIR_HEADERS, rows=rows, notes=tuple(notes))


def _pair_cells(pair: dict[str, Any], items: ItemFigures | None) -> tuple[str, ...]:
    known = pair["p"] is not None
    return (
        pair["task"],
        pair["filter"],
        _difference(pair),
        f"{pair['won']}/{pair['lost']}" if known else NOTHING,
        f"{pair['p']:.2g}" if known else NOTHING,
        f"{100 * pair['detectable']:.1f}" if known else NOTHING,
        NOTHING if pair["same_output"] is None else f"{pair['same_output']:.1%}",
        with_interval(items.acceptance_length, None) if items else NOTHING,
        _tpot(items) if items else NOTHING,
    )


def _tpot(items: ItemFigures) -> str:
    text = milliseconds(items.tpot_ms)
    if items.tpot_ratio is None:
        return text
    ends = "" if items.tpot_ratio_low is None else f" [{items.tpot_ratio_low:.2f}, {items.tpot_ratio_high:.2f}]"
    return f"{text} ({items.tpot_ratio:.2f}x{ends})"


def _difference(pair: dict[str, Any]) -> str:
    if pair["difference"] is None:
        return NOTHING
    text = f"{100 * pair['difference']:+.1f}"
    return text if pair["p"] is None else f"{text} [{100 * pair['low']:+.1f}, {100 * pair['high']:+.1f}]"
