"""An ablation as a table: the effect of each switch against a base arm, at one or several batch sizes.

The record of such a run holds the base and the requested rows: the switch, its value, and the arm's label or why the
combination is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.spec.table_records import Ablation, AblationRow
from specbench.reports.cells import NOTHING
from specbench.reports.document import Table
from specbench.reports.run.arm_columns import COLUMNS, Row, text
from specbench.reports.run.view import RunView

_COLUMNS = (
    *("tpot_ms", "tpot_delta", "round_ms", "round_change", "tps", "factor"),
    *("spread", "syncs", "graph", "rows", "draft_rows"),
)
_HEADERS = ("switch", "value", "batch", *(COLUMNS[name][0] for name in _COLUMNS), "marks")


def ablation_table(views: Sequence[RunView]) -> Table | None:
    """Rows in the order of the run, each at every batch size; None if a view is not of an ablation."""
    first = views[0].record.purpose.ablation if views else None
    if first is None or any(view.record.purpose.ablation is None for view in views):
        return None
    rows = [_row(view, row, first) for row in first.rows for view in _views(views, row)]
    notes = [
        f"base {first.base}: {first.summary}. Every other row changes one switch of it and nothing else.",
        "TPOT change: against the base at the same batch size, paired by prompt and repeat; bootstrap over blocks and "
        "prompts. round change, speed-up: ratio of medians (min to max of the repeats).",
    ]
    notes += first.notes
    acceptance = views[0].record.purpose.acceptance
    return Table(
        title=f"Ablation of {first.base}",
        headers=_HEADERS,
        rows=tuple(rows),
        notes=(*notes, acceptance) if acceptance else tuple(notes),
    )


def _views(views: Sequence[RunView], row: AblationRow) -> Sequence[RunView]:
    """A refused combination is refused at every batch size, so it has a single row."""
    return views[:1] if row.refused else views


def _row(view: RunView, row: AblationRow, ablation: Ablation) -> tuple[str, ...]:
    if row.refused:
        return (row.switch, row.value, *[NOTHING] * (len(_HEADERS) - 3), f"refused: {row.refused}")
    arms = {arm.label: arm for arm in view.arms}
    compared = Row(view=view, arm=arms[row.label or ""], baseline=arms[ablation.rows[0].label or ""])
    batch = text(view.record.sampling.max_concurrency if view.record.sampling else None)
    marks = "; ".join(arms[row.label or ""].marks) or NOTHING
    return (row.switch, row.value, batch, *(COLUMNS[name][1](compared) for name in _COLUMNS), marks)
