"""The data table below a chart: all rows of its frame."""

from __future__ import annotations

import math
from typing import Any

from specbench.reports.cells import NOTHING, number
from specbench.reports.document import Table

from .chart import Chart

_HEADERS = {"series": "strategy", "low": "from", "high": "to", "least": "MDE", "dashed": "line", "facet": "metric"}


def data_table(chart: Chart) -> Table:
    """All rows of the frame; changes as signed percentages, other figures with up to four digits."""
    columns = chart.data_columns
    headers = {**_HEADERS, "x": chart.x.title, "y": chart.y.title}
    rows = zip(*(chart.frame[name].tolist() for name in columns), strict=True)
    return Table(
        title=chart.title,
        headers=tuple(headers.get(name, name) for name in columns),
        rows=tuple(tuple(_cell(chart, *cell) for cell in zip(columns, row, strict=True)) for row in rows),
    )


def _cell(chart: Chart, name: str, value: Any) -> str:
    if name == "dashed":
        return "dashed" if value else "solid"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    measured = ("x", "low", "high", "least") if chart.names else ("y", "low", "high")
    if name in measured and "change" in (chart.x.unit, chart.y.unit):
        return f"{value:+.2%}"
    return value if isinstance(value, str) else number(float(value))
