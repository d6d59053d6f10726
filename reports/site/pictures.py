"""The charts of a site as PNG and PDF, drawn by matplotlib from the same plots as the pages: for papers, comments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from specbench.reports.plots import wrapped

from .page import Page
from .plots import Bars, Intervals, Lines, Plot, Slopes, Stacks, Style

# The colours of the site on light ground, as in its style sheets.
COLOURS = {
    **{"s0": "#0072b2", "s1": "#b86e00", "s2": "#00805f", "s3": "#c04a00", "s4": "#b0588f", "s5": "#2f86bd"},
    **{"s6": "#5a5f68", "s7": "#8a7f00", "verify": "#4b9fd1", "accept": "#5cc4a0", "advance": "#f0e442"},
    **{"compact": "#e8925c", "prefill": "#a6d8f2", "mixed": "#b9c7f0", "status": "#dba3c2", "host": "#c3c7ce"},
    **{"other": "#e4e6ea", "draft0": "#f0b34a", "draft1": "#d08a1e", "draft2": "#f6d08c", "draft3": "#a86a0c"},
}
_MARKERS = {"circle": "o", "square": "s", "triangle-up": "^", "diamond": "D", "cross": "P", "triangle-down": "v"}
_WIDTH_INCHES, _DPI = 8.5, 150
_AXIS_CHARACTERS, _LEGEND_CHARACTERS = 36, 80


def write_pictures(pages: Iterable[Page], folder: Path, formats: Sequence[str]) -> list[Path]:
    """`<page>-<chart>.<format>` for every chart; returns the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for page in pages:
        stem = page.path.removesuffix(".html").replace("/", "-")
        for plot in (plot for section in page.sections for plot in section.charts):
            drawn = figure(plot)
            for name in formats:
                path = folder / f"{stem}-{plot.name}.{name}"
                drawn.savefig(path, dpi=_DPI)
                written.append(path)
    return written


@singledispatch
def figure(plot: Plot) -> Figure:
    """The matplotlib figure of a plot."""
    raise TypeError(f"no drawing for {type(plot).__name__}")


@figure.register
def _lines(plot: Lines) -> Figure:
    drawn, axes = _figure(plot, 4.4)
    frame = plot.frame.assign(dashed=plot.frame["dashed"].astype(bool) if "dashed" in plot.frame else False)
    if plot.reference is not None:
        axes.axhline(plot.reference, color="#545962", lw=1)
    for at, text in plot.marks:
        axes.axvline(at, color="#545962", lw=1, ls="--")
        axes.annotate(
            text, (at, 1), (3, -10), xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=8
        )
    has_dashed = bool(frame["dashed"].any())
    for (name, dashed), own in frame.groupby(["series", "dashed"], sort=False):
        style = plot.styles[str(name)]
        dash = (0, (3, 3)) if dashed else (0, () if has_dashed or style.dash == (1, 0) else style.dash)
        is_named = not dashed or frame.loc[frame["series"] == name, "dashed"].all()
        label = wrapped(str(name), _LEGEND_CHARACTERS) if is_named else None
        own = own.sort_values("x")
        way = "steps-post" if plot.are_steps else "default"
        axes.plot(
            own["x"], own["y"], ls=dash, label=label, marker=_MARKERS[style.shape], ms=5, color=_colour(style), ds=way
        )
        if "low" in own and own["low"].notna().any():
            known = own.dropna(subset=["low", "high"])
            axes.vlines(known["x"], known["low"], known["high"], color=_colour(style), lw=1.2)
    if plot.scale == "log2":
        axes.set_xscale("log", base=2)
    if plot.scale in ("log2", "ordinal"):
        axes.set_xticks(sorted(set(frame["x"])), [f"{x:g}" for x in sorted(set(frame["x"]))])
        axes.minorticks_off()
    if plot.shares:
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    return _legend(drawn, axes)


@figure.register
def _bars(plot: Bars) -> Figure:
    drawn, axes = _figure(plot, 4.4)
    width = 0.8 / len(plot.styles)
    for n, (name, style) in enumerate(plot.styles.items()):
        own = plot.frame[plot.frame["series"] == name]
        offset = (n - (len(plot.styles) - 1) / 2) * width
        label = wrapped(name, _LEGEND_CHARACTERS)
        axes.bar(own["x"] + offset, own["y"], width, color=_colour(style), edgecolor="black", lw=0.4, label=label)
    axes.set_xticks(sorted(set(plot.frame["x"])))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    return _legend(drawn, axes)


@figure.register
def _stacks(plot: Stacks) -> Figure:
    names = list(dict.fromkeys(plot.frame["y"]))
    drawn, axes = _figure(plot, 1.6 + 0.5 * len(names))
    left = np.zeros(len(names))
    for part, style in plot.styles.items():
        own = plot.frame[plot.frame["part"] == part].set_index("y")["value"]
        widths = own.reindex(names).fillna(0.0).to_numpy()
        axes.barh(
            range(len(names)), widths, left=left, color=_colour(style), edgecolor="white", height=0.62, label=part
        )
        left += widths
    _names(axes, names)
    axes.set_ylabel("")
    return _legend(drawn, axes)


@figure.register
def _intervals(plot: Intervals) -> Figure:
    names = list(dict.fromkeys(plot.frame["y"]))
    drawn, axes = _figure(plot, 1.4 + 0.6 * len(names))
    axes.axvspan(-plot.margin, plot.margin, color="#c9cdd4", alpha=0.6, lw=0)
    axes.axvline(0, color="black", lw=1)
    for y, row in enumerate(plot.frame.to_dict("records")):
        if pd.notna(row["low"]):
            axes.hlines(y, row["low"], row["high"], color="black", lw=2.5)
        if pd.notna(row["least"]):
            axes.plot(row["least"], y, "|", color=COLOURS["s1"], ms=12)
        axes.plot(row["x"], y, "D", color="black")
        axes.annotate(row["word"], (row["x"], y), (0, 8), textcoords="offset points", ha="center", fontsize=8)
    _names(axes, names)
    axes.set_ylabel("")
    axes.margins(y=0.3)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    return drawn


@figure.register
def _slopes(plot: Slopes) -> Figure:
    facets = list(dict.fromkeys(plot.frame["facet"]))
    drawn = Figure(figsize=(2.8 * len(facets) + 0.6, 3.4), layout="constrained")
    drawn.suptitle(plot.title, fontsize="medium")
    for n, facet in enumerate(facets):
        axes = drawn.add_subplot(1, len(facets), n + 1)
        for _, pair in plot.frame[plot.frame["facet"] == facet].groupby("pair", sort=False):
            axes.plot(pair["x"], pair["y"], marker="o", ms=3, color=COLOURS["s0"], alpha=0.75, lw=1)
        axes.set_title(facet, fontsize="small")
        axes.margins(x=0.3)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=1))
        axes.set_ylabel(plot.y_title if n == 0 else "")
    return drawn


def _figure(plot: Plot, height_inches: float) -> tuple[Figure, Axes]:
    drawn = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
    axes = drawn.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both", alpha=0.25)
    axes.set_axisbelow(True)
    axes.set_title(wrapped(plot.title, 2 * _LEGEND_CHARACTERS), fontsize="medium")
    axes.set_xlabel(plot.x_title)
    axes.set_ylabel(plot.y_title)
    return drawn, axes


def _names(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [wrapped(name, _AXIS_CHARACTERS) for name in names])
    axes.invert_yaxis()


def _legend(drawn: Figure, axes: Axes) -> Figure:
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(len(labels), int(90 / (6 + max(map(len, labels))))))
    drawn.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    return drawn


def _colour(style: Style) -> str:
    return COLOURS[style.colour]
