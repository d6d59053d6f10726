"""A chart before it is drawn: a frame of values, two axes, and how to show them.

The same object becomes a Vega-Lite specification (`vega.py`), a matplotlib figure (`pictures.py`) and the data table
below the chart, so the three cannot differ. Columns of the frames, in the order in which they are listed:

    series       distinguished by colour, shape and dash
    x, y         the values, in the units of the axes
    low, high    ends of an interval about the value; nan where there is none
    least        the smallest effect that would have been detected (MDE)
    dashed       whether the value belongs to the dashed line of its series
    part         a piece of a stacked bar
    facet, pair  which small chart, and which points a line joins there

Further columns are written beside the values, or are for the data table and tooltips only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from specbench.harness.profiling.record import PHASES

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
NUM_COLOURS, NUM_DRAFT_SHADES = 8, 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """`colour`: its name in the style sheet (`--s0`), lighter in dark mode; `shape`, `dash`: colour is never alone."""

    colour: str
    shape: str = SHAPES[0]
    dash: tuple[int, ...] = DASHES[0]


@dataclass(slots=True)
class Styles:
    """The style of each series, the same in all charts of a site: assigned in the order in which names turn up."""

    known: dict[str, Style] = field(default_factory=dict)

    def of(self, names: Iterable[str]) -> dict[str, Style]:
        return {name: self._one(name) for name in dict.fromkeys(names)}

    def _one(self, name: str) -> Style:
        i, turn = len(self.known) % NUM_COLOURS, len(self.known) // NUM_COLOURS
        style = Style(colour=f"s{i}", shape=SHAPES[(i + turn) % len(SHAPES)], dash=DASHES[(i + turn) % len(DASHES)])
        return self.known.setdefault(name, style)


def phase_styles(parts: Iterable[str]) -> dict[str, Style]:
    """Styles of the parts of a round, in the colours of the timelines. Drafter passes are shades of one colour, idle
    time and gaps are grey."""
    names = list(dict.fromkeys(parts))
    drafts = [name for name in names if name.startswith("draft")]
    shades = {name: f"draft{n % NUM_DRAFT_SHADES}" for n, name in enumerate(drafts)}
    return {name: Style(colour=shades.get(name, name if name in PHASES else "host")) for name in names}


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """`scale`: number; whole (counts from 1); log2; ordinal; names, one to a row. `unit`: a share of 1 and a change are
    shown as percentages. `range`: both ends, where they are fixed."""

    title: str
    scale: Literal["number", "whole", "log2", "ordinal", "names"] = "number"
    unit: Literal["number", "share", "change"] = "number"
    range: tuple[float, float] | None = None


CHANGES = ["y", "x", "low", "high", "least", "verdict"]
"""Columns of a chart of changes with their intervals."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chart:
    """Values as `marks`, intervals and ticks where the frame has them, and what lies behind and beside them.

    name: of its files, unique on its page: letters, digits, hyphens. styles: of the names in `series` or `part`, in the
    order of the legend; without them everything is drawn in ink. marks: lines with a symbol at each point; steps, where
    a value holds until the next; bars, upright and side by side, or lying and stacked beside names; points. rule: a
    line across the chart at this value. margin: a grey band about 0. events: dashed upright lines, (x, text). words:
    the column written above each value, or to the right of the end in the column `words_beside`.
    """

    name: str
    title: str
    description: str
    frame: pd.DataFrame
    x: Axis
    y: Axis
    marks: Literal["lines", "steps", "bars", "points"]
    styles: dict[str, Style] = field(default_factory=dict)
    rule: float | None = None
    margin: float | None = None
    events: tuple[tuple[float, str], ...] = ()
    words: str = ""
    words_beside: str = ""

    @property
    def names(self) -> list[str]:
        """What the rows of a chart with names are called, from the top; empty for other charts."""
        return list(dict.fromkeys(self.frame["y"])) if self.y.scale == "names" else []

    @property
    def has_lines(self) -> bool:
        return self.marks in ("lines", "steps")

    def strokes(self) -> dict[tuple[str, bool], tuple[int, ...]]:
        """The dashes of each (series, dashed); where some lines are dashed on purpose, all others are solid."""
        if "dashed" in self.frame:
            keys = zip(self.frame["series"], self.frame["dashed"], strict=True)
            return {(name, is_dashed): (3, 3) if is_dashed else (1, 0) for name, is_dashed in keys}
        return {(name, False): style.dash for name, style in self.styles.items()}

    def has(self, column: str) -> bool:
        """Whether any value of the column is known."""
        return column in self.frame and bool(self.frame[column].notna().any())


def drawable(*charts: Chart) -> tuple[Chart, ...]:
    """Those that have something to show."""
    return tuple(chart for chart in charts if len(chart.frame))
