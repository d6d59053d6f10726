"""The data table below a chart: the rows of its frame, whole, with figures of up to four digits."""

from __future__ import annotations

import math
from typing import Any

from specbench.reports.cells import NOTHING, number
from specbench.reports.document import Table

from .plots import Intervals, Plot, Slopes, Stacks

_HIDDEN = ("order",)
_NAMES = {
    "series": "strategy",
    "low": "from",
    "high": "to",
    "least": "least effect",
    "word": "verdict",
    "dashed": "line",
}
_PERCENT = ("x", "low", "high", "least")


def plot_table(plot: Plot) -> Table:
    """Columns in the order of the frame; intervals as signed percentages, as the chart shows them."""
    columns = [name for name in plot.frame if name not in _HIDDEN]
    rows = tuple(
        tuple(_cell(plot, str(name), value) for name, value in zip(columns, row, strict=True))
        for row in plot.frame[columns].itertuples(index=False)
    )
    return Table(title=plot.title, headers=tuple(_header(plot, str(name)) for name in columns), rows=rows)


def _header(plot: Plot, name: str) -> str:
    if name == "x":
        return plot.x_title
    if name == "y":
        return plot.y_title
    if name == "value" and isinstance(plot, Stacks):
        return plot.x_title
    return _NAMES.get(name, name)


def _cell(plot: Plot, name: str, value: Any) -> str:
    if name == "dashed":
        return "dashed" if value else "solid"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    if isinstance(plot, Intervals) and name in _PERCENT:
        return f"{value:+.2%}"
    if isinstance(plot, Slopes) and name == "y":
        return f"{value:+.2%}"
    return str(value) if isinstance(value, (str, int)) else number(float(value))
