"""Stored runs side by side: one row per arm and metric, as a table, Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from specbench.harness.judge.comparison import ComparedRuns, Row
from specbench.harness.metrics.figures import COMPARED, SAME_OUTPUT, Figure
from specbench.harness.stats.verdict import EQUIVALENT, EXPLORATORY, INCONCLUSIVE, Comparison
from specbench.harness.store.files import json_text, to_object
from specbench.reports.cells import (
    NOTHING,
    TOO_WIDE,
    change_text,
    is_too_wide_change,
    marked_name,
    number,
    share,
    size_text,
    with_interval,
)
from specbench.reports.document import Table, without

COMPARE_SCHEMA = "specbench.compare/2"
HEADERS = ("run", "arm", "metric", "baseline", "this", "change [95% CI]", "MDE", "verdict", "pairs")
NO_COUNTERPART = "no counterpart"
_SIGNS = {EQUIVALENT: "~", INCONCLUSIVE: "?"}
_CSV = ("run", "arm", "baseline", "metric", "unit", "median", "baseline_mean", "mean", "change", "low", "high")
_CSV_TEST = ("least_effect", "p", "verdict", "num_pairs", "pairs", "marks")


def compare_table(compared: ComparedRuns) -> Table:
    """Rows in the order of the runs; the notes give differences, unreadable files and how to read the table."""
    rows = [cells for row in compared.rows if not row.is_baseline for cells in _rows(row)]
    notes = [
        f"Change: geometric mean over pairs of this / baseline, with a paired t interval; ~: equivalent (inside "
        f"±{100 * compared.min_effect:.3g}%), ?: inconclusive, MDE: minimum detectable "
        "effect with this many pairs, at 80% power.",
        "exploratory: fewer than 6 pairs, a metric that is not gated, or times of two runs without the machine's noise "
        "floor: no verdict. Holm over the metrics of one arm, not over arms: each has its own 5%.",
        "Pairs within one run are repeats or prompts of arms that alternate in one process: their interval does not "
        "cover the next process. Pairs of an A/B run are its blocks.",
    ]
    return Table(
        title="Comparison of stored runs",
        headers=HEADERS,
        rows=tuple(rows),
        notes=(*differences(compared), *_arm_notes(compared), *notes),
        spare=("pairs", "MDE", "baseline", "this"),
    )


def without_run(table: Table) -> Table:
    """With the run in the title instead of every row, if there is only one."""
    runs = {row[0] for row in table.rows}
    if len(runs) != 1:
        return table
    title = f"{runs.pop()} against the baseline"
    return replace(without(table, "run"), title=title)


def _arm_notes(compared: ComparedRuns) -> list[str]:
    """What is compared with what, and the marks of the arms; arms of a run that share a mark are in one line."""
    arms_by_text: dict[tuple[str, str], list[str]] = {}
    for row in compared.rows:
        against = (
            f"against {counterpart_of(row)}" if row.baseline else "the baseline" if row.is_baseline else NO_COUNTERPART
        )
        for text in (against, *row.marks):
            arms_by_text.setdefault((row.run, text), []).append(row.arm)
    return [f"{run}: {', '.join(arms)}: {text}" for (run, text), arms in arms_by_text.items()]


def counterpart_of(row: Row) -> str:
    """Only the run, if the arm has the same name there."""
    return row.baseline.removesuffix(f": {row.arm}")


def differences(compared: ComparedRuns) -> list[str]:
    """Why runs cannot be compared, what could not be used, and remarks."""
    mismatched = [f"NOT COMPARABLE: {m.run} differs in {m.describe()}" for m in compared.mismatches]
    return [*mismatched, *(f"problem: {p.reason}" for p in compared.problems), *compared.notes]


def compare_json(compared: ComparedRuns) -> str:
    """Everything, as indented strict JSON."""
    return json_text({"schema": COMPARE_SCHEMA, **to_object(compared)})


def compare_csv(compared: ComparedRuns) -> str:
    """One line per arm and metric; changes are fractions, empty if there is no figure."""
    rows = [_csv_row(row, figure) for row in compared.rows for figure in COMPARED]
    cells = [{name: _defused(value) for name, value in row.items()} for row in rows]
    return pd.DataFrame(cells, columns=[*_CSV, *_CSV_TEST], dtype=object).to_csv(index=False, lineterminator="\n")


def change_cell(comparison: Comparison | None) -> str:
    """`-2.50% [-2.91%, -2.09%]`, with ~ for equivalent and ? for inconclusive."""
    if comparison is None or comparison.change is None:
        return NOTHING
    if is_too_wide_change(comparison.low, comparison.high):
        return TOO_WIDE
    sign = f"{_SIGNS[comparison.verdict]} " if comparison.verdict in _SIGNS else ""
    return sign + with_interval(change_text, comparison.change, comparison.low, comparison.high)


def verdict_cell(comparison: Comparison) -> str:
    if comparison.verdict != INCONCLUSIVE or not comparison.more_pairs:
        return comparison.verdict
    return f"{comparison.verdict}: needs about {comparison.more_pairs} more"


def _rows(row: Row) -> Iterable[tuple[str, ...]]:
    arm = marked_name(row.arm, row.marks)
    for figure in COMPARED:
        value, found = row.values[figure.key], row.comparisons.get(figure.key)
        if value is None and found is None:
            continue
        if found is None or found.a is None:
            yield (row.run, arm, figure.heading, NOTHING, number(value), NOTHING, NOTHING, word_of(row), NOTHING)
            continue
        yield (
            row.run,
            arm,
            figure.heading,
            number(found.a),
            number(found.b),
            change_cell(found),
            size_text(found.least_effect),
            verdict_cell(found),
            f"{found.num_pairs} {found.metric.pairs}",
        )
    if row.same_output is not None:
        same, pairs = row.same_output
        word = "equal" if same == pairs else f"{pairs - same} of {pairs} differ"
        yield (
            row.run,
            arm,
            SAME_OUTPUT.name,
            NOTHING,
            share(same / pairs),
            NOTHING,
            NOTHING,
            word,
            f"{pairs} requests",
        )


def word_of(row: Row) -> str:
    """The cell of an arm or figure without a comparison."""
    return EXPLORATORY if row.baseline else NO_COUNTERPART


def _csv_row(row: Row, figure: Figure) -> dict[str, Any]:
    found = row.comparisons.get(figure.key)
    base: dict[str, Any] = {"run": row.run, "arm": row.arm, "baseline": row.baseline, "metric": figure.key}
    base |= {"unit": figure.unit, "median": row.values[figure.key], "marks": "; ".join(row.marks)}
    if found is None:
        return base
    tested: Mapping[str, Any] = to_object(found)
    picked = {name: tested[name] for name in ("change", "low", "high", "least_effect", "p", "verdict", "num_pairs")}
    return {**base, "baseline_mean": found.a, "mean": found.b, **picked, "pairs": found.metric.pairs}


def _defused(value: Any) -> Any:
    """Quotes text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value
