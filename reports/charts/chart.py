"""A chart before it is drawn: a frame of values, two axes, and how to show them.

The same object becomes a Vega-Lite specification (`vega.py`), a matplotlib figure (`pictures.py`) and the data table
below the chart, so the three cannot differ. Columns of the frames, in the order of the table:

    series       distinguished by colour, shape and dash
    x, y         the values, in the units of the axes
    low, high    ends of an interval about the value; nan if there is none
    least        the minimum detectable effect (MDE)
    dashed       whether the value belongs to the dashed line of its series
    part         a piece of a stacked bar
    facet, pair  which small chart, and which points a line joins there; a lone series is named above its chart

Further columns are written next to the values, or are only for the data table and tooltips, which leave out columns
that start with an underscore.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from specbench.harness.metrics.doubts import OF_ARM, OF_RUN
from specbench.harness.profiling.record import PHASES

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
NUM_COLOURS, NUM_DRAFT_SHADES = 8, 4
_MOST_LINES = 3  # in one chart
_LEAST_SEEN = 0.003  # share of the longest bar: two of 700 pixels
_MARKS = re.compile(rf"( \((?:{'|'.join((*OF_ARM, *OF_RUN))})\))+$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """`colour`: its name in the style sheet (`--s0`), lighter in dark mode; `shape`, `dash`: so that colour is never
    the only difference."""

    colour: str
    shape: str = SHAPES[0]
    dash: tuple[int, ...] = DASHES[0]


@dataclass(slots=True)
class Styles:
    """The style of each series, the same in all charts of a site: assigned in the order in which names appear."""

    known: dict[str, Style] = field(default_factory=dict)

    def of(self, names: Iterable[str]) -> dict[str, Style]:
        """Names that differ only in marks of their measurement belong to one strategy and share a style, unless one
        chart has both."""
        unique = list(dict.fromkeys(names))
        plain = Counter(_MARKS.sub("", name) for name in unique)
        return {name: self._one(own if plain[own := _MARKS.sub("", name)] == 1 else name) for name in unique}

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
    """`scale`: number; whole (counts from 1); log2; ordinal; names, one per row. `unit`: shares of 1 and changes are
    shown as percentages, factors as 1.5x. `range`: both ends, if fixed. `spans`: all small charts together, or each
    separately, from 0."""

    title: str
    scale: Literal["number", "whole", "log2", "ordinal", "names"] = "number"
    unit: Literal["number", "share", "change", "factor"] = "number"
    range: tuple[float, float] | None = None
    spans: Literal["all", "each"] = "all"


CHANGES = ["y", "x", "low", "high", "least", "verdict"]
"""Columns of a chart of changes with their intervals."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chart:
    """Values as `marks`, intervals and ticks if the frame has them, and decorations behind and beside them.

    name: of its files, unique on its page: letters, digits, hyphens. styles: for the names in `series` or `part`, in
    the order of the legend; without them everything is drawn in ink. marks: lines with a symbol at each point; steps,
    where a value holds until the next; bars, upright and side by side, or horizontal and stacked next to names; points.
    rule: a line across the chart at this value, upright if the rows have names. margin: a grey band about 0. events:
    dashed upright lines, (x, text). words: the column written above each value, or to the right of the end in the
    column `words_beside`. along: the column that lines follow.
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
    along: str = "x"

    @property
    def names(self) -> list[str]:
        """The names of the rows, from the top; empty for charts without names."""
        return list(dict.fromkeys(self.frame["y"].tolist())) if self.y.scale == "names" else []

    @property
    def data_columns(self) -> list[str]:
        """The columns of tables and tooltips, without any that repeats a name."""
        twice = {"part", "facet"} if self.names_itself else set()
        return [str(name) for name in self.frame if not str(name).startswith("_") and name not in twice]

    @property
    def legend(self) -> dict[str, Style]:
        """The styles for the legend; empty if names are written at the values."""
        return {} if self.names_itself else {n: style for n, style in self.styles.items() if n not in self.too_thin}

    @property
    def names_itself(self) -> bool:
        """Whether each row or small chart has a single name, which is written beside or above it."""
        if not self.styles or not len(self.frame):
            return False
        if "part" in self.frame:
            return bool((self.frame["part"] == self.frame["y"]).all())
        if "facet" not in self.frame:
            return False
        series, facets = self.frame["series"].tolist(), self.frame["facet"].tolist()  # a column of text is slow to walk
        return len(set(zip(series, facets, strict=True))) == len(set(series))

    @property
    def too_thin(self) -> list[str]:
        """Parts of stacked bars whose bars are all thinner than a line."""
        if "part" not in self.frame or not len(self.frame):
            return []
        longest = float(self.frame.groupby("y")["x"].sum().max())
        widest = self.frame.groupby("part")["x"].max()
        return [name for name in self.styles if longest > 0 and widest.get(name, longest) < _LEAST_SEEN * longest]

    @property
    def has_lines(self) -> bool:
        return self.marks in ("lines", "steps")

    def strokes(self) -> dict[tuple[str, bool], tuple[int, ...]]:
        """The dash pattern of each (series, dashed). If some lines are dashed on purpose, all others are solid."""
        if "dashed" in self.frame:
            keys = zip(self.frame["series"], self.frame["dashed"], strict=True)
            return {(name, is_dashed): (3, 3) if is_dashed else (1, 0) for name, is_dashed in keys}
        return {(name, False): style.dash for name, style in self.styles.items()}

    def num_on_top(self) -> dict[str, int]:
        """For each series, how many later lines cover all its points: it must be drawn wider to be visible behind them.
        Empty if all are visible."""
        if not (self.has_lines and self.styles):
            return {}
        columns = [name for name in ("x", "y", "dashed") if name in self.frame]
        points: dict[str, set[tuple[object, ...]]] = {}
        for name, *point in zip(*(self.frame[column].tolist() for column in ("series", *columns)), strict=True):
            points.setdefault(name, set()).add(tuple(point))
        names = [name for name in self.styles if name in points]
        found = {name: sum(points[name] <= points[other] for other in names[n + 1 :]) for n, name in enumerate(names)}
        return found if any(found.values()) else {}

    def has(self, column: str) -> bool:
        """Whether any value of the column is known."""
        return column in self.frame and bool(self.frame[column].notna().any())


def small_charts(frame: pd.DataFrame, suffix: str = "") -> pd.DataFrame:
    """With one facet per series if one chart would have too many lines; names that differ only in `suffix` share a
    facet."""
    if frame["series"].nunique() <= _MOST_LINES:
        return frame
    return frame.assign(facet=frame["series"].str.removesuffix(suffix))


def drawable(*charts: Chart) -> tuple[Chart, ...]:
    """The charts that have something to show."""
    return tuple(chart for chart in charts if len(chart.frame))
