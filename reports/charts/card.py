"""A card of one result, 1200 x 630 pixels, for pull requests and slides; drawn by matplotlib in the site's colours.

Every text is measured and folded into the place it has; where it does not fit it is set smaller. Only a command may be
cut, which then says so by its ending.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from specbench.reports.document import Fact

from .chart import Chart
from .pictures import draw, palette

WIDTH_PX, HEIGHT_PX = 1200, 630
_DPI, _MARGIN_PX, _BELOW_PX, _SMALLEST = 100, 48, 16, 8.0
_SIZES = {"big": 40.0, "answer": 21.0, "value": 21.0, "note": 11.5, "small": 11.5}  # points
_CUT = " ..."


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """`answer`: a sentence. `facts`: the first is set large. `warnings`: what must be read before any figure. `chart`:
    with a name to each row, or None. `about`: what was measured, and where."""

    heading: str
    answer: str
    facts: tuple[Fact, ...]
    chart: Chart | None
    warnings: tuple[str, ...]
    about: str
    command: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """In pixels from the upper left corner of the card."""

    x: float
    y: float
    width: float
    height: float


def write_card(card: Card, path: Path) -> None:
    """As a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    card_figure(card).savefig(path, dpi=_DPI, facecolor=palette()["ground"])


def card_figure(card: Card) -> Figure:
    """The figure, whose texts all lie inside."""
    drawn = Figure(figsize=(WIDTH_PX / _DPI, HEIGHT_PX / _DPI), dpi=_DPI)
    FigureCanvasAgg(drawn)  # measures texts
    ink, quiet = palette()["text"], palette()["quiet"]
    inner = WIDTH_PX - 2 * _MARGIN_PX
    _write(drawn, card.heading, Place(x=_MARGIN_PX, y=30, width=inner, height=20), _SIZES["small"], color=quiet)
    answer = Place(x=_MARGIN_PX, y=62, width=inner, height=118)
    _write(drawn, card.answer, answer, _SIZES["answer"], color=ink, weight="bold")
    _rule(drawn, 192)
    _facts(drawn, card.facts, Place(x=_MARGIN_PX, y=210, width=400 if card.chart else inner, height=250))
    if card.chart is not None:
        _chart(drawn, card.chart, Place(x=490, y=206, width=WIDTH_PX - _MARGIN_PX - 490, height=262))
    _rule(drawn, 476)
    bottom = 486.0
    looks = (
        (" ".join(card.warnings), 62, {"color": palette()["bad"]}),
        (card.about, 34, {"color": quiet}),
        (card.command, HEIGHT_PX, {"color": ink, "family": "monospace"}),
    )
    for text, height, look in looks:
        if text:
            place = Place(x=_MARGIN_PX, y=bottom, width=inner, height=min(height, HEIGHT_PX - _BELOW_PX - bottom))
            written = _write(drawn, text, place, _SIZES["small"], may_cut=text == card.command, **look)
            bottom = HEIGHT_PX - written.get_window_extent().y0 + 10
    return drawn


def _facts(drawn: Figure, facts: Sequence[Fact], place: Place) -> None:
    top = place.y
    for n, fact in enumerate(facts):
        size = _SIZES["value" if n else "big"]
        high = 38 if n else 62
        at = Place(x=place.x, y=top, width=place.width, height=18)
        _write(drawn, fact.name, at, _SIZES["note"], color=palette()["quiet"])
        at = Place(x=place.x, y=top + 18, width=place.width, height=high)
        colour = palette()["text" if n else "link"]
        value = _write(drawn, fact.value, at, size, color=colour, weight="bold")
        right = value.get_window_extent().x1 + 14
        at = Place(x=right, y=top + 18, width=place.x + place.width - right, height=high)
        note = _write(drawn, fact.note, at, _SIZES["note"], color=palette()["quiet"])
        note.set_y(1 - (top + 18 + high / 2) / HEIGHT_PX)
        note.set_verticalalignment("center")
        top += 18 + high + 12


def _write(drawn: Figure, text: str, place: Place, size: float, may_cut: bool = False, **look: str) -> Text:
    """`text` in lines that fit the place, smaller where it has too many words for it."""
    written = drawn.text(
        place.x / WIDTH_PX,
        1 - place.y / HEIGHT_PX,
        "",
        va="top",
        size=size,
        linespacing=1.25,
        parse_math=False,
        **look,  # type: ignore[arg-type]
    )
    while True:
        written.set_fontsize(size)
        lines = _folded(written, text, place.width)
        if _height(written, lines) <= place.height or size <= _SMALLEST:
            break
        size -= 0.5
    while may_cut and len(lines) > 1 and _height(written, lines) > place.height:
        lines = [*lines[:-2], lines[-2][: -len(_CUT)] + _CUT]
    written.set_text("\n".join(lines))
    return written


def _folded(written: Text, text: str, width_px: float) -> list[str]:
    """Greedily, between words; a word that is wider than the place is folded where it must."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if _width(written, longer) <= width_px:
            lines[-1] = longer
            continue
        while _width(written, word) > width_px and len(word) > 1:
            fits = bisect_right(range(1, len(word)), width_px, key=lambda n: _width(written, word[:n]))
            lines.append(word[: max(fits, 1)])
            word = word[max(fits, 1) :]
        lines.append(word)
    return [line for line in lines if line]


def _width(written: Text, line: str) -> float:
    written.set_text(line)
    return written.get_window_extent().width


def _height(written: Text, lines: Sequence[str]) -> float:
    written.set_text("\n".join(lines))
    return written.get_window_extent().height if lines else 0.0


def _chart(drawn: Figure, chart: Chart, place: Place) -> None:
    """Its title above, its axes as large as their labels leave them room."""
    _write(drawn, chart.x.title, Place(x=place.x, y=place.y, width=place.width, height=18), _SIZES["note"])
    axes = drawn.add_axes((place.x / WIDTH_PX, 0.3, place.width / WIDTH_PX, 0.3))
    draw(chart, axes, chart.frame)
    axes.set_xlabel("")
    axes.margins(x=0.25)
    axes.tick_params(labelsize=9)
    _fit(axes, Place(x=place.x, y=place.y + 26, width=place.width, height=place.height - 26))


def _fit(axes: Axes, place: Place) -> None:
    """Moves the ends of the axes until all that is written beside them lies in the place."""
    left, right = place.x, place.x + place.width
    bottom, top = HEIGHT_PX - place.y - place.height, HEIGHT_PX - place.y  # upwards, as matplotlib counts
    ends = [left, bottom, right, top]
    for _ in range(3):
        x0, y0, x1, y1 = ends
        axes.set_position((x0 / WIDTH_PX, y0 / HEIGHT_PX, (x1 - x0) / WIDTH_PX, (y1 - y0) / HEIGHT_PX))
        box = axes.get_tightbbox()
        assert box is not None
        over = (left - box.x0, bottom - box.y0, right - box.x1, top - box.y1)
        ends = [max(ends[0], ends[0] + over[0]), max(ends[1], ends[1] + over[1])] + [
            min(ends[2], ends[2] + over[2]),
            min(ends[3], ends[3] + over[3]),
        ]


def _rule(drawn: Figure, y: float) -> None:
    ends = (_MARGIN_PX / WIDTH_PX, 1 - _MARGIN_PX / WIDTH_PX)
    drawn.add_artist(Line2D(ends, [1 - y / HEIGHT_PX] * 2, color=palette()["line"], lw=1))
