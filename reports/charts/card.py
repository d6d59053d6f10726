"""A card of one result, 1200 x 630 pixels, for pull requests and slides; drawn by matplotlib in the site's colours.

Every text is measured and folded to fit its box. If it does not fit, it is set in a smaller size; text that is too long
even for the smallest size is cut and ends with a mark. Only doubts about the figures are red.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from specbench.harness.store.files import fill_named
from specbench.reports.document import Fact

from .chart import Chart
from .pictures import draw, palette

WIDTH_PX, HEIGHT_PX = 1200, 630
MARGIN_PX = 48  # at the left and at the right
_DPI, _SMALLEST = 100, 8.0
_LAST_PX, _LINE_PX, _GAP_PX = HEIGHT_PX - 16, 15, 8  # below the chart
_VALUE_SHARE = 0.6  # share of the width of a fact that has a note
_SIZES = {"big": 40.0, "answer": 21.0, "value": 21.0, "note": 11.5, "small": 11.5}  # points
_TRIALS = 4
_LETTERS = 64  # about what a line holds
_CUT = " ..."


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """`answer`: a sentence. `facts`: the first is set large. `warnings`: doubts about the figures; `conditions`: facts
    under which the figures hold. `chart`: one with a name per row, or None. `about`: what was measured, and where."""

    heading: str
    answer: str
    facts: tuple[Fact, ...]
    chart: Chart | None
    warnings: tuple[str, ...]
    conditions: tuple[str, ...]
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
    drawn = card_figure(card)
    path.parent.mkdir(parents=True, exist_ok=True)
    fill_named(path, lambda file: drawn.savefig(file, format="png", dpi=_DPI, facecolor=palette()["ground"]))


def card_figure(card: Card) -> Figure:
    """The figure, with all texts inside it."""
    drawn = Figure(figsize=(WIDTH_PX / _DPI, HEIGHT_PX / _DPI), dpi=_DPI)
    FigureCanvasAgg(drawn)  # measures texts
    ink, quiet = palette()["text"], palette()["quiet"]
    inner = WIDTH_PX - 2 * MARGIN_PX
    _write(drawn, card.heading, Place(x=MARGIN_PX, y=30, width=inner, height=20), _SIZES["small"], color=quiet)
    answer = Place(x=MARGIN_PX, y=62, width=inner, height=118)
    _write(drawn, card.answer, answer, _SIZES["answer"], color=ink, weight="bold")
    _rule(drawn, 192)
    _facts(drawn, card.facts, Place(x=MARGIN_PX, y=210, width=400 if card.chart else inner, height=250))
    if card.chart is not None:
        _chart(drawn, card.chart, Place(x=490, y=206, width=WIDTH_PX - MARGIN_PX - 490, height=262))
    _rule(drawn, 476)
    looks = (
        (" ".join(card.warnings), 36, {"color": palette()["bad"]}),
        (" ".join(card.conditions), 36, {"color": ink}),
        (card.about, 20, {"color": quiet}),
        (card.command, HEIGHT_PX, {"color": ink, "family": "monospace"}),
    )
    _below(drawn, [look for look in looks if look[0]], Place(x=MARGIN_PX, y=486, width=inner, height=_LAST_PX - 486))
    return drawn


def _below(drawn: Figure, looks: Sequence[tuple[str, float, dict[str, str]]], place: Place) -> None:
    """Stacks texts, each as high as it needs up to its own limit, keeping at least one line for each remaining text."""
    top, end = place.y, place.y + place.height
    for n, (text, limit, look) in enumerate(looks, start=1):
        left = end - top - (len(looks) - n) * (_LINE_PX + _GAP_PX)
        at = Place(x=place.x, y=top, width=place.width, height=min(limit, left))
        written = _write(drawn, text, at, _SIZES["small"], **look)
        top = HEIGHT_PX - written.get_window_extent().y0 + _GAP_PX


def _facts(drawn: Figure, facts: Sequence[Fact], place: Place) -> None:
    top = place.y
    for n, fact in enumerate(facts):
        size = _SIZES["value" if n else "big"]
        high = 38 if n else 62
        at = Place(x=place.x, y=top, width=place.width, height=18)
        _write(drawn, fact.name, at, _SIZES["note"], color=palette()["quiet"])
        width = place.width * (_VALUE_SHARE if fact.note else 1)
        at = Place(x=place.x, y=top + 18, width=width, height=high)
        colour = palette()["text" if n else "link"]
        value = _write(drawn, fact.value, at, size, color=colour, weight="bold")
        right = value.get_window_extent().x1 + 14
        at = Place(x=right, y=top + 18, width=place.x + place.width - right, height=high)
        note = _write(drawn, fact.note, at, _SIZES["note"], color=palette()["quiet"])
        note.set_y(1 - (top + 18 + high / 2) / HEIGHT_PX)
        note.set_verticalalignment("center")
        top += 18 + high + 12


def _write(drawn: Figure, text: str, place: Place, size: float, **look: str) -> Text:
    """`text` in lines that fit the box: smaller if it is too long, and cut if even the smallest size is too large."""
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
    sizes = [size - half / 2 for half in range(max(1, round(2 * (size - _SMALLEST)) + 1))]

    def fits(tried: float) -> bool:
        written.set_fontsize(tried)
        return _height(written, _first_lines(written, text, place)) <= place.height

    chosen = sizes[min(bisect_left(sizes, True, key=fits), len(sizes) - 1)]
    written.set_fontsize(chosen)
    lines = _first_lines(written, text, place)
    while len(lines) > 1 and _height(written, lines) > place.height:
        lines = [*lines[:-2], lines[-2][: -len(_CUT)] + _CUT]
    written.set_text("\n".join(lines))
    return written


def _first_lines(written: Text, text: str, place: Place) -> list[str]:
    """The lines of `text` up to the first that is below the box: what comes after it is never drawn."""
    lines: list[str] = []
    for line in _folded(written, text, place.width):
        lines.append(line)
        if _height(written, lines) > place.height:
            break
    return lines


def _folded(written: Text, text: str, width_px: float) -> Iterator[str]:
    """Greedily, between words; words that are wider than the box are broken."""
    words, num_before = text.split(), 1
    while words:
        num_words = _most_that_fit(written, words, " ", width_px, num_before)
        if num_words:
            yield " ".join(words[:num_words])
            words, num_before = words[num_words:], num_words
        else:
            num_letters = max(1, _most_that_fit(written, words[0], "", width_px, _LETTERS))
            yield words[0][:num_letters]
            words[:1] = [rest] if (rest := words[0][num_letters:]) else []


def _most_that_fit(written: Text, pieces: Sequence[str], between: str, width_px: float, guess: int) -> int:
    """The number of pieces, from the first, whose text is at most that wide. Measuring takes a millisecond for a line
    and longer for more, so the search starts near the guess."""
    low, high, step = 0, len(pieces) + 1, 1
    at = min(guess, len(pieces))
    while low + 1 < high:
        if _width(written, between.join(pieces[:at])) <= width_px:
            low, at = at, at + step
        else:
            high, at = at, at - step
        step *= 2
        if not low < at < high:
            at = (low + high) // 2
    return low


def _width(written: Text, line: str) -> float:
    written.set_text(line)
    return written.get_window_extent().width


def _height(written: Text, lines: Sequence[str]) -> float:
    written.set_text("\n".join(lines))
    return written.get_window_extent().height if lines else 0.0


def _chart(drawn: Figure, chart: Chart, place: Place) -> None:
    """The title on top, and axes as large as their labels allow."""
    _write(drawn, chart.x.title, Place(x=place.x, y=place.y, width=place.width, height=18), _SIZES["note"])
    axes = drawn.add_axes((place.x / WIDTH_PX, 0.3, place.width / WIDTH_PX, 0.3))
    draw(chart, axes, chart.frame)
    axes.set_xlabel("")
    axes.margins(x=0.1)
    axes.tick_params(labelsize=9)
    at = Place(x=place.x, y=place.y + 26, width=place.width, height=place.height - 26)
    for _ in range(_TRIALS):  # each changes what the other needs
        _fit(axes, at)
        _take_in(axes)
    _fit(axes, at)


def _take_in(axes: Axes) -> None:
    """Extends the scale until the texts at the values lie between the axes."""
    inside = axes.get_window_extent()
    boxes = [text.get_window_extent() for text in axes.texts]
    low, high = axes.get_xlim()
    per_px = (high - low) / inside.width
    left = max([0.0, *(inside.x0 + _GAP_PX - box.x0 for box in boxes)])
    right = max([0.0, *(box.x1 + _GAP_PX - inside.x1 for box in boxes)])
    axes.set_xlim(low - left * per_px, high + right * per_px)


def _fit(axes: Axes, place: Place) -> None:
    """Moves the ends of the axes until all text around them lies in the box."""
    left, right = place.x, place.x + place.width
    bottom, top = HEIGHT_PX - place.y - place.height, HEIGHT_PX - place.y  # upwards, as matplotlib counts
    ends = [left, bottom, right, top]
    for _ in range(_TRIALS):
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
    ends = (MARGIN_PX / WIDTH_PX, 1 - MARGIN_PX / WIDTH_PX)
    drawn.add_artist(Line2D(ends, [1 - y / HEIGHT_PX] * 2, color=palette()["line"], lw=1))
