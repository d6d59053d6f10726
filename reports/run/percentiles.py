"""Percentiles of user-visible latencies: TTFT, ITL, TPOT, and the whole request (E2EL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from specbench.harness.metrics.figures import E2EL_MS, ITL_MS, TPOT_MS, TTFT_MS
from specbench.harness.metrics.latency import RANKS
from specbench.harness.store.results import ArmSummary, Figures
from specbench.reports.cells import milliseconds, row_name
from specbench.reports.charts.chart import Axis, Chart, Styles
from specbench.reports.document import Table

_FIGURES = (TTFT_MS, ITL_MS, TPOT_MS, E2EL_MS)
_NOTE = (
    "Medians over repeats. TTFT, TPOT and E2EL (submit to last token) are over the requests of a repeat, ITL over its "
    "tokens: 0 means that the token arrived together with the one before it."
)


def medians(arms: Sequence[ArmSummary]) -> dict[str, Figures]:
    """For each arm's row, its figures by their block names."""
    return {row_name(arm): {name: own.median for name, own in arm.spreads.items()} for arm in arms if arm.num_repeats}


def percentile_tables(figures: Mapping[str, Figures]) -> list[Table]:
    """A table for each figure that an arm has. `figures`: as `medians` gives them."""
    headers = ("strategy", *(f"p{rank}" for rank in RANKS))
    tables = []
    for figure in _FIGURES:
        blocks = [figure.statistic(f"p{rank}")[1] for rank in RANKS]
        if any(own.get(block) is not None for own in figures.values() for block in blocks):
            rows = ((name, *(milliseconds(own.get(block)) for block in blocks)) for name, own in figures.items())
            tables.append(Table(title=figure.heading, headers=headers, rows=tuple(rows)))
    return [*tables[:-1], *(replace(table, notes=(_NOTE,)) for table in tables[-1:])]


def percentile_chart(figures: Mapping[str, Figures], styles: Styles) -> Chart:
    """The same as small charts, one per figure, each with its own scale."""
    rows = [
        (name, f"p{rank}", value, figure.heading)
        for figure in _FIGURES
        for name, own in figures.items()
        for rank in RANKS
        if (value := own.get(figure.statistic(f"p{rank}")[1])) is not None
    ]
    frame = pd.DataFrame(rows, columns=["series", "x", "y", "facet"])
    return Chart(
        name="percentiles",
        title="Latency by percentile",
        description="Each metric has its own scale, from 0. Lower is better; a steep end is a long tail.",
        frame=frame,
        x=Axis(title="percentile", scale="ordinal"),
        y=Axis(title="ms", spans="each"),
        marks="lines",
        styles=styles.of(frame["series"]),
    )
