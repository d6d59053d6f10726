"""Charts as PNG and PDF, drawn by matplotlib without a display: for papers, comments and reports in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from specbench.harness.store.files import write_atomically
from specbench.reports.cells import number

from .chart import Chart

_STYLE_SHEETS = ("templates/page.css", "site/templates/site.css")
_MARKERS = {"circle": "o", "square": "s", "triangle-up": "^", "diamond": "D", "cross": "P", "triangle-down": "v"}
_WIDTH_INCHES, _HEIGHT_INCHES, _DPI = 8.5, 4.8, 150
_MOST_BESIDE = 4  # small charts
_AXIS_CHARACTERS, _LEGEND_CHARACTERS, _TEXT_CHARACTERS = 36, 80, 130
_INK, _QUIET, _BAND = "#1a1c20", "#545962", "#c9cdd4"


def write_pictures(charts: Iterable[tuple[str, Chart]], folder: Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Writes `<stem>.<format>` for each (stem, chart) and returns the files. A chart without rows is not drawn, and its
    picture from an earlier state is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for stem, chart in charts:
        paths = [folder / f"{stem}.{name}" for name in formats]
        for path in paths:
            path.unlink(missing_ok=True)
        if len(chart.frame):
            drawn = figure(chart)
            for path in paths:
                write_atomically(path, partial(drawn.savefig, format=path.suffix[1:], dpi=_DPI))
            written += paths
    return written


def figure(chart: Chart) -> Figure:
    """The matplotlib figure; colours are those of the pages in light mode."""
    facets = list(dict.fromkeys(chart.frame["facet"])) if "facet" in chart.frame else [""]
    lines = sum(map(num_lines, chart.names))
    height = 1.9 + max(0.55 * len(chart.names), 0.22 * lines) if chart.names else _HEIGHT_INCHES
    columns = min(len(facets), _MOST_BESIDE)
    rows = -(-len(facets) // columns)
    drawn = Figure(figsize=(max(_WIDTH_INCHES, 2.8 * columns), height * (1 + 0.7 * (rows - 1))), layout="constrained")
    drawn.suptitle(f"{_literal(chart.title)}\n{wrapped(chart.description, _TEXT_CHARACTERS)}", fontsize="small")
    first = None
    for n, facet in enumerate(facets):
        axes = drawn.add_subplot(rows, columns, n + 1, sharey=first)
        first = axes if chart.y.spans == "all" else None
        draw(chart, axes, chart.frame[chart.frame["facet"] == facet] if facet else chart.frame)
        axes.set_title(wrapped(str(facet), _AXIS_CHARACTERS), fontsize="small")
        axes.set_ylabel("" if n % columns else axes.get_ylabel())
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        columns = max(1, min(len(labels), int(90 / (6 + max(map(len, labels))))))
        drawn.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    return drawn


def draw(chart: Chart, axes: Axes, frame: pd.DataFrame) -> None:
    """Draws the values of `frame` (all, or those of one facet) and whatever lies behind and beside them."""
    if chart.names:
        frame = frame.assign(y=frame["y"].map(chart.names.index))
    _draw_behind(chart, axes)
    _draw_values(chart, axes, frame)
    _draw_beside(chart, axes, frame)
    _finish(chart, axes)


def num_lines(name: str) -> int:
    """How many lines the name of a row takes beside its axis."""
    return wrapped(name, _AXIS_CHARACTERS).count("\n") + 1


def wrapped(label: str, width: int) -> str:
    """The whole label, broken after commas and blanks into lines of at most `width`, never parsed as mathematics.
    Nothing is cut off, because labels often differ only at their ends."""
    words = re.split(r"(?<=[, ])", label)
    pieces = [word[i : i + width] for word in words for i in range(0, len(word), width)]
    lines = [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return _literal("\n".join(line.strip() for line in lines))


def _draw_behind(chart: Chart, axes: Axes) -> None:
    """A line across the chart, a band about 0, events."""
    if chart.rule is not None:
        (axes.axvline if chart.names else axes.axhline)(chart.rule, color=_QUIET, lw=1.2)
    if chart.margin is not None:
        axes.axvspan(-chart.margin, chart.margin, color=_BAND, alpha=0.6, lw=0)
        axes.axvline(0, color=_INK, lw=1)
    for at, text in chart.events:
        axes.axvline(at, color=_QUIET, lw=1, ls="--")
        place = ("data", "axes fraction")
        axes.annotate(_literal(text), (at, 1), (3, -10), xycoords=place, textcoords="offset points", fontsize=8)


def _draw_values(chart: Chart, axes: Axes, frame: pd.DataFrame) -> None:
    if chart.marks == "bars":
        _draw_bars(chart, axes, frame)
    elif chart.styles:
        _draw_lines(chart, axes, frame)
    else:
        for _, pair in frame.groupby("pair", sort=False) if chart.has_lines else ():
            axes.plot(pair["x"], pair["y"], color=_INK, alpha=0.6, lw=1)
        axes.plot(frame["x"], frame["y"], "D" if chart.names else "o", color=_INK, ms=6 if chart.names else 3)
    for row in frame.dropna(subset=["low", "high"]).itertuples() if chart.has("low") else ():
        if chart.names:
            axes.plot([row.low, row.high], [row.y, row.y], "|-", color=_INK, lw=1.5)
        else:
            axes.vlines(row.x, row.low, row.high, color=_colour(chart, row.series), lw=1.2)


def _draw_bars(chart: Chart, axes: Axes, frame: pd.DataFrame) -> None:
    left, width = np.zeros(len(chart.names)), 0.8 / len(chart.styles)
    for n, name in enumerate(chart.styles):
        label = wrapped(name, _LEGEND_CHARACTERS) if name in chart.legend else None
        look: dict[str, Any] = {"color": _colour(chart, name), "label": label}
        if chart.names:
            own = frame[frame["part"] == name].set_index("y")["x"].reindex(range(len(left))).fillna(0.0).to_numpy()
            axes.barh(range(len(left)), own, left=left, edgecolor="white", height=0.62, **look)
            left += own
        else:
            own = frame[frame["series"] == name]
            offset = (n - (len(chart.styles) - 1) / 2) * width
            axes.bar(own["x"] + offset, own["y"], width, edgecolor="black", lw=0.4, **look)


def _draw_lines(chart: Chart, axes: Axes, frame: pd.DataFrame) -> None:
    dashed = frame["dashed"] if "dashed" in frame else pd.Series(False, index=frame.index)
    strokes, under = chart.strokes(), chart.num_on_top()
    for (name, is_dashed), own in frame.groupby([frame["series"], dashed], sort=False):
        dash = strokes[name, is_dashed]
        is_named = name in chart.legend and (not is_dashed or (name, False) not in strokes)
        own = own.sort_values(chart.along)
        axes.plot(
            own["x"],
            own["y"],
            ls=(0, () if dash == (1, 0) else dash),
            ds="steps-post" if chart.marks == "steps" else "default",
            marker=_MARKERS[chart.styles[name].shape],
            ms=5 * (1 + 0.6 * under.get(name, 0)),
            lw=1.5 * (1 + 2 * under.get(name, 0)),
            alpha=0.6 if is_dashed else 1,
            color=_colour(chart, name),
            label=wrapped(name, _LEGEND_CHARACTERS) if is_named else None,
        )


def _draw_beside(chart: Chart, axes: Axes, frame: pd.DataFrame) -> None:
    """Ticks and words."""
    if chart.has("least"):
        for ends in (frame["least"], -frame["least"]):
            axes.plot(ends, frame["y"], "|", color=palette()["s1"], ms=12, mew=2)
    place, align, up = ((6, 0), "left", "center") if chart.words_beside else ((0, 8), "center", "bottom")
    for row in frame.dropna(subset=[chart.words]).to_dict("records") if chart.words else ():
        word, at = row[chart.words], (row[chart.words_beside or "x"], row["y"])
        text = _literal(word) if isinstance(word, str) else number(word)
        axes.annotate(text, at, place, textcoords="offset points", ha=align, va=up, fontsize=8)


def _finish(chart: Chart, axes: Axes) -> None:
    """Axes with their labels and ticks, and the grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both", alpha=0.25)
    axes.set_axisbelow(True)
    for axis, line in ((chart.x, axes.xaxis), (chart.y, axes.yaxis)):
        line.set_label_text("" if axis.scale == "names" else _literal(axis.title))
        if axis.unit == "factor":
            line.set_major_formatter(FuncFormatter(lambda value, _: f"{_tick(value)}x"))
        elif axis.unit != "number":
            line.set_major_formatter(PercentFormatter(1.0, decimals=1 if axis.unit == "change" else None))
        elif axis.scale in ("number", "whole"):
            line.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    if chart.x.scale == "log2":
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    if chart.x.scale in ("log2", "ordinal"):
        places = sorted(set(chart.frame["x"]))
        axes.set_xticks(places, [x if isinstance(x, str) else _tick(x) for x in places])
    if chart.x.scale == "whole":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlim=chart.x.range, ylim=chart.y.range or ((0, None) if chart.y.spans == "each" else None))
    if chart.names:
        axes.set_yticks(range(len(chart.names)), [wrapped(name, _AXIS_CHARACTERS) for name in chart.names])
        axes.set_ylim(len(chart.names) - 0.5, -0.6)  # the first on top


def _tick(value: float) -> str:
    """With thousands commas as in tables, and without digits from rounding errors: 0.3, 12.5, 1,250."""
    text = f"{value:,.6f}".rstrip("0").rstrip(".") if abs(value) >= 1 else f"{value:.6g}"
    return text.replace("-", "\N{MINUS SIGN}")


def _literal(text: str) -> str:
    return text.replace("$", r"\$")


def _colour(chart: Chart, name: str) -> str:
    return palette()[chart.styles[name].colour]


@cache
def palette() -> dict[str, str]:
    """Light-mode colours by name, from the style sheets, which define them first."""
    texts = [(Path(__file__).parents[1] / name).read_text(encoding="utf-8") for name in _STYLE_SHEETS]
    found: dict[str, str] = {}
    for name, colour in re.findall(r"--([\w-]+): (#[0-9a-f]{6});", "".join(texts)):
        found.setdefault(name, colour)
    return found
