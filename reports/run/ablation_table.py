"""One thing at a time: each switch's effect beside a base arm, over one run or several batch sizes.

The record of such a run holds the base and the rows that were asked for: the switch, its value, and
the arm's label or why the combination is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.metrics.figures import STEP_MS, SYNCS_PER_ROUND, TPOT_MS, TPS
from specbench.harness.spec.table_records import Ablation, AblationRow
from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import NOTHING, milliseconds, number, tps_spread
from specbench.reports.document import Table
from specbench.reports.run.ratios import against, change, factor, ratio, tpot_change
from specbench.reports.run.view import RunView

_HEADERS = (
    "switch",
    "value",
    "batch",
    TPOT_MS.heading,
    "TPOT change [95% CI]",
    "round p50 ms",
    "round change",
    TPS.name,
    "factor",
    "spread",
    SYNCS_PER_ROUND.name,
    "graph",
    "rows",
    "drafter rows",
    "marks",
)


def ablation_table(views: Sequence[RunView]) -> Table | None:
    """Rows in the order of the run, each at every batch size; None where a view is of another kind of run."""
    first = views[0].record.purpose.ablation if views else None
    if first is None or any(view.record.purpose.ablation is None for view in views):
        return None
    rows = [_row(view, row, first) for row in first.rows for view in _views(views, row)]
    notes = [
        f"base {first.base}: {first.summary}. Every other row changes one switch of it and nothing else.",
        "TPOT change: against the base at the same batch size, paired by prompt and repeat; bootstrap over prompts. "
        "round change, factor: ratio of medians (least to most within a repeat).",
    ]
    notes += first.notes
    acceptance = views[0].record.purpose.acceptance
    return Table(
        title=f"one thing at a time from {first.base}",
        headers=_HEADERS,
        rows=tuple(rows),
        notes=(*notes, acceptance) if acceptance else tuple(notes),
    )


def _views(views: Sequence[RunView], row: AblationRow) -> Sequence[RunView]:
    """A refused combination is refused at every batch size: once is enough."""
    return views[:1] if row.refused else views


def _row(view: RunView, row: AblationRow, ablation: Ablation) -> tuple[str, ...]:
    if row.refused:
        return (row.switch, row.value, *[NOTHING] * (len(_HEADERS) - 3), f"refused: {row.refused}")
    arms = {arm.label: arm for arm in view.arms}
    arm, base = arms[row.label or ""], arms[ablation.rows[0].label or ""]
    is_base, sampling = arm.label == base.label, view.record.sampling
    round_change = ratio(view, STEP_MS.block, arm, base)
    return (
        row.switch,
        row.value,
        NOTHING if sampling is None or sampling.max_concurrency is None else str(sampling.max_concurrency),
        milliseconds(arm.median(TPOT_MS.block)),
        NOTHING if is_base else tpot_change(against(view, arm, base)),
        milliseconds(arm.median(STEP_MS.block)),
        NOTHING if is_base else change(round_change),
        number(arm.median(TPS.block)),
        factor(ratio(view, TPS.block, arm, base), is_base),
        tps_spread(arm),
        number(arm.median(SYNCS_PER_ROUND.block)),
        _graph(view, arm),
        number(arm.median("rows_per_round")),
        number(arm.median("draft_rows_per_round")),
        "; ".join(arm.marks) or NOTHING,
    )


def _graph(view: RunView, arm: ArmSummary) -> str:
    return view.record.arm(arm.label).config.graph or NOTHING
