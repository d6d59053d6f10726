"""The blocks of an A/B experiment one by one: order, figures of both sides, and why a block does not count."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.metrics.figures import STEP_MS, TPOT_MS, Figure
from specbench.harness.store.ab_judgement import ExperimentBlock
from specbench.reports.cells import NOTHING, milliseconds
from specbench.reports.experiments.verdict_table import signed

from .badges import BAD, OPEN
from .page import Cell, LinkTable, plain_cells
from .runs import SiteRun

_FIGURES = (STEP_MS, TPOT_MS)
_HEADERS = (
    "block",
    "order",
    "counts",
    *(head for f in _FIGURES for head in (f"{f.heading} A", f"{f.heading} B", f"{f.name} change")),
)


def blocks_table(run: SiteRun) -> LinkTable:
    """A row a block in the order in which they ran. The run is an experiment that was judged."""
    assert run.ab is not None
    sides = _sides(run)
    rows = tuple(_row(run, block, sides) for block in run.ab.blocks)
    return LinkTable(
        title="Blocks in the order in which they ran",
        headers=(*_HEADERS, "load A / B", "rejected because"),
        rows=rows,
        notes=(
            "Order: the side that ran first stands first. Load: the higher of the load averages before and after the "
            "side's run. Figures of a rejected block are shown and used nowhere.",
        ),
    )


def _row(run: SiteRun, block: ExperimentBlock, sides: Sequence[str]) -> tuple[Cell, ...]:
    figures = [text for figure in _FIGURES for text in _figure(run, block.block, sides, figure)]
    return (
        Cell(text=str(block.block + 1)),
        Cell(text=block.order),
        _counts(block),
        *plain_cells(*figures, _load(block), "; ".join(block.reasons) or NOTHING),
    )


def _counts(block: ExperimentBlock) -> Cell:
    if block.reasons:
        return Cell(text="rejected", tone=BAD)
    return Cell(text="yes") if block.measured else Cell(text="not measured", tone=OPEN)


def _figure(run: SiteRun, block: int, sides: Sequence[str], figure: Figure) -> tuple[str, str, str]:
    found = (run.blocks.get((side, block)) for side in sides)
    a, b = (one.values.get(figure.block) if one else None for one in found)
    change = signed(b / a - 1) if a and b else NOTHING
    return milliseconds(a), milliseconds(b), change


def _load(block: ExperimentBlock) -> str:
    known = [[value for value in block.load_average.get(side) or () if value is not None] for side in "AB"]
    return " / ".join(f"{max(values):.2f}" if values else NOTHING for values in known)


def _sides(run: SiteRun) -> tuple[str, ...]:
    """The arms' names as the site shows them, A first."""
    found = {label.split(":")[0]: label for label, _ in run.blocks}
    return tuple(found.get(side, side) for side in "AB")
