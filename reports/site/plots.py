"""A chart before anybody draws it: a frame of plotted values and how they are to be read.

The same objects become Vega-Lite specifications (`vega.py`), matplotlib figures (`pictures.py`) and the data table
below the chart, so that the three cannot differ. Columns of the frames:

    series          what is told apart by colour, shape and dash; its names are given styles by `Styles`
    x, y            the values, in the units of `x_title` and `y_title`
    low, high       ends of an interval about y; absent, or nan where there is none
    dashed          whether the value belongs to the dashed line of its series
    part, value     a piece of a stacked bar `y`
    word            a verdict
    facet           which small chart
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd

from specbench.harness.profiling.record import PHASES

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
NUM_COLOURS, NUM_DRAFT_SHADES = 8, 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """`colour`: its name in the style sheet (`--s0`), lighter on dark ground; `shape`, `dash`: so that colour is never
    alone."""

    colour: str
    shape: str
    dash: tuple[int, ...]


@dataclass(slots=True)
class Styles:
    """The style of each series' name, the same on every page of the site: given in the order in which names turn up."""

    known: dict[str, Style] = field(default_factory=dict)

    def of(self, names: Iterable[str]) -> dict[str, Style]:
        return {name: self._one(name) for name in dict.fromkeys(names)}

    def _one(self, name: str) -> Style:
        i = len(self.known)
        made = Style(
            colour=f"s{i % NUM_COLOURS}",
            shape=SHAPES[(i % NUM_COLOURS + i // NUM_COLOURS) % len(SHAPES)],
            dash=DASHES[(i % NUM_COLOURS + i // NUM_COLOURS) % len(DASHES)],
        )
        return self.known.setdefault(name, made)


def phase_styles(parts: Iterable[str]) -> dict[str, Style]:
    """The styles of the pieces of a round, in the colours of the timelines; passes of the drafter are shades of one,
    and what is no work is grey."""
    names = list(dict.fromkeys(parts))
    drafts = [name for name in names if name.startswith("draft")]
    styles = {}
    for name in names:
        colour = f"draft{drafts.index(name) % NUM_DRAFT_SHADES}" if name in drafts else name
        known = name in drafts or name in PHASES
        styles[name] = Style(colour=colour if known else "host", shape=SHAPES[0], dash=DASHES[0])
    return styles


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Plot:
    """What every chart has. `frame`: the plotted values, nothing else is drawn."""

    name: str  # of its files: letters, digits, hyphens; unique on its page
    title: str
    description: str  # what a listener is told of it
    frame: pd.DataFrame
    x_title: str
    y_title: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Lines(Plot):
    """Points joined by lines, x upwards. `scale`: linear (whole numbers), number, log2 or ordinal. `reference`: a
    horizontal line at this y. `marks`: x and text of vertical lines. `shares`: y runs from 0 to 1, in percent.
    `are_steps`: y holds until the next point."""

    styles: dict[str, Style]
    scale: str = "linear"
    reference: float | None = None
    marks: tuple[tuple[float, str], ...] = ()
    shares: bool = False
    are_steps: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Bars(Plot):
    """Groups of upright bars, a bar a series at every x; y are shares."""

    styles: dict[str, Style]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stacks(Plot):
    """Lying bars: `y` names the bar, `part` and `value` its pieces, in the order of the frame. `parts` is the order of
    the legend."""

    styles: dict[str, Style]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Intervals(Plot):
    """A point with its interval for each `y`, x in fractions shown as percent; a grey band within +-`margin`; `word` is
    written beside it. `least`: column of the smallest effect that would have been found, drawn as a tick."""

    margin: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Slopes(Plot):
    """Pairs of values (sides in `x`), a line a `pair`, a small chart a `facet`; y as a fraction of side A's mean."""
