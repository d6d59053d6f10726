"""A chart before it is drawn: a frame of values, two axes, and the layers that show them.

The same object becomes a Vega-Lite specification (`vega.py`), a matplotlib figure (`pictures.py`) and the data table
below the chart, so the three cannot differ. Columns of the frames, in the order in which a reader is told of them:

    series       told apart by colour, shape and dash
    x, y         the values, in the units of the axes
    low, high    ends of an interval about the value; nan where there is none
    least        the smallest effect that would have been detected
    dashed       whether the value belongs to the dashed line of its series
    part         a piece of a stacked bar
    facet, pair  which small chart, and which points a line joins there

Further columns are written beside the value by `Words`, or are for the data table and tooltips only.
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


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the chart at a value."""

    value: float


@dataclass(frozen=True, slots=True)
class Band:
    """A grey band of this margin about 0, and a line at 0."""

    margin: float


@dataclass(frozen=True, slots=True)
class Events:
    """Dashed upright lines with a text each: (x, text)."""

    events: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """Joins the points of a series in the order of x; with `is_step` a value holds until the next."""

    is_step: bool = False


class Points:
    """A symbol at each value."""


class Bars:
    """Upright bars of the series side by side; lying bars of stacked parts where y are names."""


class Ends:
    """The interval from `low` to `high`."""


class Ticks:
    """A short stroke at `least`."""


@dataclass(frozen=True, slots=True)
class Words:
    """The text or number in `column` above the value, or to the right of the end in column `right_of`."""

    column: str
    right_of: str = ""


Layer = Rule | Band | Events | Line | Points | Bars | Ends | Ticks | Words
CHANGES = ["y", "x", "low", "high", "least", "verdict"]
"""Columns of a chart of `intervals`."""
LINES: tuple[Layer, ...] = (Ends(), Line(), Points())
STEPS: tuple[Layer, ...] = (Line(is_step=True), Points())


def intervals(margin: float, word: str = "verdict") -> tuple[Layer, ...]:
    """Changes with their intervals about a band of changes too small to matter; `word`: the column written above."""
    return (Band(margin), Ends(), Ticks(), Points(), Words(word))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chart:
    """`name`: of its files, unique on its page: letters, digits, hyphens. `styles`: of the names in `series` or `part`,
    in the order of the legend; without them everything is drawn in ink."""

    name: str
    title: str
    description: str
    frame: pd.DataFrame
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    styles: dict[str, Style] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """What the rows of a chart with names are called, from the top; empty for other charts."""
        return list(dict.fromkeys(self.frame["y"])) if self.y.scale == "names" else []

    def strokes(self) -> dict[tuple[str, bool], tuple[int, ...]]:
        """The dashes of each (series, dashed); where some lines are dashed on purpose, all others are solid."""
        frame = self.frame
        if "dashed" in frame:
            return {key: (3, 3) if key[1] else (1, 0) for key in zip(frame["series"], frame["dashed"], strict=True)}
        return {(name, False): style.dash for name, style in self.styles.items()}

    def shown(self) -> list[Layer]:
        """The layers, without intervals and ticks where no value of theirs is known."""
        known = {str(name) for name in self.frame if self.frame[name].notna().any()}
        needs = {Ends: "low", Ticks: "least"}
        return [layer for layer in self.layers if needs.get(type(layer), "x") in known]


def drawable(*charts: Chart) -> tuple[Chart, ...]:
    """Those that have something to show."""
    return tuple(chart for chart in charts if len(chart.frame))
