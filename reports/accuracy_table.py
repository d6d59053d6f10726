"""Accuracy of arms: lm-eval's table with a row for each arm and filter, and every arm against the baseline, paired."""

from __future__ import annotations

from typing import Any

from specbench.harness.measure.metrics import ArmSummary
from specbench.reports.cells import NOTHING, milliseconds, with_interval
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
    "TPOT ms",
)


def accuracy_tables(view: RunView) -> list[ResultTable]:
    """Two tables of an evaluation, none for a run without one. Arms that failed or are missing stand in the notes."""
    figures = (view.manifest.get("results") or {}).get("accuracy")
    record = view.manifest.get("evaluation")
    if not figures or not record:
        return []
    tables = [_scores(view, figures["scores"], record)]
    if figures["pairs"]:
        tables.append(_pairs(view, figures["pairs"]))
    return tables


def _scores(view: RunView, scores: list[dict[str, Any]], record: dict[str, Any]) -> ResultTable:
    rows = tuple(
        (
            s["arm"],
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
        for s in scores
    )
    scored = {s["arm"] for s in scores}
    missing = [f"{a.label}: not scored{': ' + a.error if a.error else ''}" for a in view.arms if a.label not in scored]
    notes = (f"lm-eval {record['lm_eval']}; stderr as lm-eval's", *record["gsm8k"]["notes"], *missing)
    return ResultTable(title=f"Accuracy ({view.manifest['run_id']})", headers=_SCORE_HEADERS, rows=rows, notes=notes)


def _pairs(view: RunView, pairs: list[dict[str, Any]]) -> ResultTable:
    arms = {arm.label: arm for arm in view.arms}
    rows = tuple(_pair_cells(pair, arms.get(pair["arm"])) for pair in pairs)
    notes = (
        "difference in points over the same items, interval of Agresti and Min 2005; McNemar exact; detectable: the "
        "difference found 4 times of 5 at the 5% level, given how many items differ.",
        "same output: items answered with the same text; AL and TPOT: of these items.",
    )
    title = f"Against {pairs[0]['baseline']}, item by item"
    return ResultTable(title=title, headers=_PAIR_HEADERS, rows=rows, notes=notes)


def _pair_cells(pair: dict[str, Any], arm: ArmSummary | None) -> tuple[str, ...]:
    acceptance = arm.acceptance if arm else {}
    known = pair["p"] is not None
    return (
        pair["arm"],
        pair["task"],
        pair["filter"],
        _difference(pair),
        f"{pair['won']}/{pair['lost']}" if known else NOTHING,
        f"{pair['p']:.2g}" if known else NOTHING,
        f"{100 * pair['detectable']:.1f}" if known else NOTHING,
        NOTHING if pair["same_output"] is None else f"{pair['same_output']:.1%}",
        with_interval(acceptance.get("acceptance_length"), None),
        milliseconds(arm.median("tpot_ms.mean")) if arm else NOTHING,
    )


def _difference(pair: dict[str, Any]) -> str:
    if pair["difference"] is None:
        return NOTHING
    text = f"{100 * pair['difference']:+.1f}"
    return text if pair["p"] is None else f"{text} [{100 * pair['low']:+.1f}, {100 * pair['high']:+.1f}]"
