"""The table by data set, for a run over several; for other runs by category of their questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specbench.harness.metrics.figures import ACCEPTANCE_LENGTH, TPOT_MS
from specbench.harness.store.results import CategoryFigures
from specbench.reports.cells import acceptance_length, milliseconds, row_name
from specbench.reports.document import Table, table_of, with_rows
from specbench.reports.run.ratios import TPOT_RATIO, tpot_ratio
from specbench.reports.run.view import RunView


@dataclass(frozen=True, slots=True)
class _Row:
    arm: str
    figures: CategoryFigures


def category_tables(view: RunView) -> tuple[Table, ...]:
    """A row for each category and arm, the arms of one category together; none for a run that is not divided."""
    kind = "data set" if view.record.config and len(view.record.config.workload.names) > 1 else "category"
    found = [_Row(row_name(arm), figures) for arm in view.arms for figures in arm.categories]
    names = list(dict.fromkeys(row.figures.name for row in found))
    rows = sorted(found, key=lambda row: names.index(row.figures.name))
    columns: dict[str, Callable[[_Row], str]] = {kind: lambda row: row.figures.name, **_COLUMNS}
    return with_rows(table_of(f"By {kind}", columns, rows, (_NOTE.format(kind=kind),)))


_COLUMNS: dict[str, Callable[[_Row], str]] = {
    "strategy": lambda row: row.arm,
    "prompts": lambda row: str(row.figures.num_prompts),
    f"{ACCEPTANCE_LENGTH.name} [95% CI]": lambda row: acceptance_length(row.figures.acceptance),
    TPOT_MS.heading: lambda row: milliseconds(row.figures.tpot_ms),
    TPOT_RATIO: lambda row: tpot_ratio(row.figures.speedup),
}
_NOTE = (
    "AL and TPOT as in the comparison, over the prompts of one {kind}; intervals over these prompts. "
    "TPOT ratio: baseline / arm on the same prompts, above 1 the arm is faster. Requests in flight together share "
    "rounds, whatever their {kind}."
)
