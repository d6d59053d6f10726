"""The blocks of an A/B experiment one by one: order, figures of both sides, and why a block does not count."""

from __future__ import annotations

from specbench.harness.metrics.figures import STEP_MS, TPOT_MS
from specbench.harness.store.ab_judgement import ExperimentBlock
from specbench.reports.cells import NOTHING, change_text, milliseconds
from specbench.reports.document import Cell, Table

from .badges import BAD, OPEN
from .runs import SiteRun

_FIGURES = (STEP_MS, TPOT_MS)
_NOTE = (
    "Order: the side that ran first comes first. Load: the higher of the load averages before and after the side's "
    "run. Figures of a rejected block are shown but not used."
)


def blocks_table(run: SiteRun) -> Table:
    """One row per block, in the order in which they ran. The run must be a judged experiment."""
    assert run.ab is not None
    heads = [head for f in _FIGURES for head in (f"{f.heading} A", f"{f.heading} B", f"{f.name} change")]
    return Table(
        title="Blocks in the order in which they ran",
        headers=("block", "order", "counts", *heads, "load A / B", "rejected because"),
        rows=tuple(_row(run, block) for block in run.ab.blocks),
        notes=(_NOTE,),
    )


def _row(run: SiteRun, block: ExperimentBlock) -> tuple[str | Cell, ...]:
    measured = {label.split(":")[0]: figures.values for (label, n), figures in run.blocks.items() if n == block.block}
    cells: list[str] = []
    for figure in _FIGURES:
        a, b = (measured.get(side, {}).get(figure.block) for side in "AB")
        cells += [milliseconds(a), milliseconds(b), change_text(b / a - 1, max_decimals=2) if a and b else NOTHING]
    loads = [[load for load in block.load_average.get(side) or () if load is not None] for side in "AB"]
    load = " / ".join(f"{max(known):.2f}" if known else NOTHING for known in loads)
    return str(block.block + 1), block.order, _counts(block), *cells, load, "; ".join(block.reasons) or NOTHING


def _counts(block: ExperimentBlock) -> str | Cell:
    if block.reasons:
        return Cell(text="rejected", tone=BAD)
    return "yes" if block.measured else Cell(text="not measured", tone=OPEN)
