"""The form of a chart: what its layers follow from, besides the values that they show.

The charts of similar runs have equal forms, so that `vega.py` makes the layers of each form once. A form that has 1 and
one that has 1.0 are equal too: a page has one kind of number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .chart import Axis, Chart, Style

_CROWDED = 30  # points per line, above which they are drawn smaller

Kind = Literal["quantitative", "nominal"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """As in `Chart`, and of its frame: kinds: of the values in each column. spoken: the columns of tooltips. known: the
    columns with any known value. ticks: on an axis of powers of two. under: as `num_on_top`. longest_word: its number
    of characters."""

    x: Axis
    y: Axis
    marks: Literal["lines", "steps", "bars", "points"]
    styles: tuple[tuple[str, Style], ...]
    rule: float | None
    margin: float | None
    events: tuple[tuple[float, str], ...]
    words: str
    words_beside: str
    along: str
    names: tuple[str, ...]
    kinds: tuple[tuple[str, Kind], ...]
    spoken: tuple[str, ...]
    known: frozenset[str]
    ticks: tuple[float, ...]
    under: tuple[tuple[str, int], ...]
    is_crowded: bool
    longest_word: int

    @property
    def columns(self) -> list[str]:
        return [name for name, _ in self.kinds]

    @property
    def series(self) -> list[str]:
        """The names that have a style."""
        return [name for name, _ in self.styles]

    @property
    def has_lines(self) -> bool:
        return self.marks in ("lines", "steps")

    def kind(self, column: str) -> Kind:
        return dict(self.kinds)[column]


def form_of(chart: Chart) -> Form:
    """Two charts with equal forms differ in nothing but their titles, their descriptions and the rows of their
    frames."""
    frame = chart.frame
    return Form(
        x=chart.x,
        y=chart.y,
        marks=chart.marks,
        styles=tuple(chart.styles.items()),
        rule=chart.rule,
        margin=chart.margin,
        events=chart.events,
        words=chart.words,
        words_beside=chart.words_beside,
        along=chart.along,
        names=tuple(chart.names),
        kinds=tuple((str(name), _kind(own.dtype.kind)) for name, own in frame.items()),
        spoken=tuple(name for name in chart.data_columns if name != "dashed"),
        known=frozenset(name for name in ("low", "least") if chart.has(name)),
        ticks=tuple(sorted(set(frame["x"].tolist()))) if chart.x.scale == "log2" else (),
        under=tuple(chart.num_on_top().items()),
        is_crowded=len(frame) > _CROWDED * max(len(chart.styles), 1),
        longest_word=_longest_word(chart),
    )


def _kind(letter: str) -> Kind:
    return "quantitative" if letter in "fi" else "nominal"


def _longest_word(chart: Chart) -> int:
    """0 where no chart leaves space for it."""
    if not (chart.names and chart.words):
        return 0
    return max((len(str(word)) for word in chart.frame[chart.words].dropna()), default=0)
