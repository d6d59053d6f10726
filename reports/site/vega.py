"""Charts as Vega-Lite specifications, made with altair, data inlined; colours are the page's own CSS variables.

So a chart follows the page into dark mode and onto paper without being drawn again, and every mark of the SVG carries
its values as its accessible name.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Literal

import altair as alt
import pandas as pd

from specbench.harness.store.files import to_object, to_plain
from specbench.workloads.json_values import JsonObject

from .plots import Bars, Intervals, Lines, Plot, Slopes, Stacks, Style

_INK, _QUIET, _LINE = "var(--text)", "var(--quiet)", "var(--line)"
_HEIGHT_PX, _ROW_PX = 280, 34
_CROWDED = 30  # points of a line, beyond which they are drawn smaller
_LABEL_PX = 260  # of the names beside lying bars; longer ones are cut, the table has them whole
# Of the axes' labels only: a format of the axis would round the values in the marks' accessible names as well.
_PERCENT, _CHANGE, _NUMBER = (f"format(datum.value, '{form}')" for form in (".0%", "+.1~%", ",.4~r"))
_CONFIG: JsonObject = {
    "background": None,
    "font": 'system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif',
    "view": {"stroke": None},
    "axis": {
        "labelColor": _INK,
        "titleColor": _INK,
        "domainColor": _QUIET,
        "tickColor": _QUIET,
        "gridColor": _LINE,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": _LABEL_PX,
    },
    "header": {"labelColor": _INK, "titleColor": _INK, "labelFontSize": 12},
    "text": {"color": _INK, "fontSize": 12},
    "rule": {"color": _QUIET},
}


@singledispatch
def specification(plot: Plot) -> JsonObject:
    """The Vega-Lite specification of a plot as plain data."""
    raise TypeError(f"no drawing for {type(plot).__name__}")


@specification.register(Lines)
def _lines(plot: Lines) -> JsonObject:
    frame = plot.frame.assign(dashed=plot.frame["dashed"].astype(bool) if "dashed" in plot.frame else False)
    x = _x_of(plot)
    y_axis = alt.Axis(labelExpr=_PERCENT) if plot.shares else alt.Axis(labelExpr=_NUMBER)
    domain = alt.Scale(domain=[0, 1]) if plot.shares else alt.Scale(zero=False, nice=True)
    y = alt.Y("y", type="quantitative", title=plot.y_title, scale=domain, axis=y_axis)
    colour = _colour(plot.styles)
    layers: list[alt.Chart | alt.LayerChart] = []
    if plot.reference is not None:
        rule = alt.Chart(alt.Data(values=[{"y": plot.reference}])).mark_rule(strokeWidth=1.5, aria=False)
        layers.append(rule.encode(y=alt.Y("y", type="quantitative")))
    if plot.marks:
        layers.append(_marks(plot))
    base = alt.Chart(_values(frame))
    if "low" in frame and frame["low"].notna().any():
        bars = base.mark_rule(strokeWidth=1.5, aria=False).transform_filter("isValid(datum.low)")
        layers.append(
            bars.encode(x=x, y=alt.Y("low", type="quantitative", title=plot.y_title), y2="high", color=colour)
        )
    strokes = {False: [1, 0], True: [3, 3]} if frame["dashed"].any() else None
    way: Literal["step-after", "linear"] = "step-after" if plot.are_steps else "linear"
    line = base.mark_line(strokeWidth=2, aria=False, interpolate=way).encode(x=x, y=y, color=colour, detail="dashed:N")
    if strokes:
        dash = alt.StrokeDash("dashed:N", legend=None, scale=alt.Scale(domain=[False, True], range=[[1, 0], [3, 3]]))
    else:
        dash = alt.StrokeDash("series:N", legend=None, scale=_dashes(plot.styles))
    layers.append(line.encode(strokeDash=dash))
    is_crowded = len(frame) > _CROWDED * max(len(plot.styles), 1)
    points = base.mark_point(filled=True, size=14 if is_crowded else 60, opacity=1)
    shape = alt.Shape("series:N", legend=None, scale=_shapes(plot.styles), title="series")
    spoken = [alt.Tooltip("series:N"), alt.Tooltip("x", type=_kind(plot), title=plot.x_title)]
    spoken += [alt.Tooltip("y:Q", title=plot.y_title)]
    spoken += [alt.Tooltip(f"{end}:Q") for end in ("low", "high") if end in frame]
    spoken += [alt.Tooltip("note:N")] if "note" in frame else []
    layers.append(points.encode(x=x, y=y, color=colour, shape=shape, tooltip=spoken))
    return _whole(plot, alt.layer(*layers), _HEIGHT_PX)


def _marks(plot: Lines) -> alt.LayerChart:
    values = alt.Data(values=[{"x": at, "text": text} for at, text in plot.marks])
    x = alt.X("x", type=_kind(plot))
    rules = alt.Chart(values).mark_rule(strokeDash=[4, 3], aria=False).encode(x=x)
    texts = alt.Chart(values).mark_text(align="center", baseline="bottom", dy=-3, fontSize=11)
    return rules + texts.encode(x=x, y=alt.value(0), text="text:N")


@specification.register(Bars)
def _bars(plot: Bars) -> JsonObject:
    bars = alt.Chart(_values(plot.frame)).mark_bar(stroke=_INK, strokeWidth=0.5)
    encoded = bars.encode(
        x=alt.X("x:O", title=plot.x_title, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("series:N", sort=list(plot.styles)),
        y=alt.Y("y:Q", title=plot.y_title, axis=alt.Axis(labelExpr=_PERCENT)),
        color=_colour(plot.styles),
        tooltip=[
            alt.Tooltip("series:N"),
            alt.Tooltip("x:O", title=plot.x_title),
            alt.Tooltip("y:Q", title=plot.y_title),
        ],
    )
    return _whole(plot, encoded, _HEIGHT_PX)


@specification.register(Stacks)
def _stacks(plot: Stacks) -> JsonObject:
    order = {part: n for n, part in enumerate(plot.styles)}
    frame = plot.frame.assign(order=plot.frame["part"].map(order))
    names = list(dict.fromkeys(plot.frame["y"]))
    bars = alt.Chart(_values(frame)).mark_bar(stroke="var(--ground)", strokeWidth=1, height={"band": 0.62})
    encoded = bars.encode(
        x=alt.X("value:Q", title=plot.x_title, stack="zero", axis=alt.Axis(tickCount=10)),
        y=alt.Y("y:N", title=None, sort=names),
        color=_colour(plot.styles, "part"),
        order=alt.Order("order:Q"),
        tooltip=[
            alt.Tooltip("y:N", title=plot.y_title),
            alt.Tooltip("part:N"),
            alt.Tooltip("value:Q", title=plot.x_title),
        ],
    )
    return _whole(plot, encoded, _ROW_PX * len(names) + 20)


@specification.register(Intervals)
def _intervals(plot: Intervals) -> JsonObject:
    names = list(dict.fromkeys(plot.frame["y"]))
    y = alt.Y("y:N", title=None, sort=names)
    axis = alt.Axis(labelExpr=_CHANGE, tickCount=9)
    x = alt.X("x:Q", title=plot.x_title, axis=axis, scale=alt.Scale(padding=45))
    band = alt.Chart(alt.Data(values=[{"from": -plot.margin, "to": plot.margin}])).mark_rect(aria=False)
    zero = alt.Chart(alt.Data(values=[{"x": 0}])).mark_rule(aria=False, color=_INK)
    base = alt.Chart(_values(plot.frame))
    ends = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=3, color=_INK, aria=False)
    layers = [
        band.mark_rect(color=_LINE, opacity=0.6, aria=False).encode(x=alt.X("from:Q", title=plot.x_title), x2="to:Q"),
        zero.encode(x="x:Q"),
        ends.encode(x=alt.X("low:Q", axis=axis, title=plot.x_title), x2="high:Q", y=y),
    ]
    if "least" in plot.frame and plot.frame["least"].notna().any():
        ticks = base.transform_filter("isValid(datum.least)").mark_tick(
            thickness=2, size=12, color="var(--s1)", aria=False
        )
        layers += [ticks.encode(x=alt.X("least:Q"), y=y)]
    told = [alt.Tooltip("y:N", title=plot.y_title), alt.Tooltip("x:Q", title=plot.x_title)]
    told += [alt.Tooltip("low:Q"), alt.Tooltip("high:Q"), alt.Tooltip("word:N", title="verdict")]
    points = base.mark_point(filled=True, size=90, opacity=1, color=_INK, shape="diamond")
    texts = base.mark_text(dy=-12, aria=False).encode(x="x:Q", y=y, text="word:N")
    layers += [points.encode(x=x, y=y, tooltip=told), texts]
    return _whole(plot, alt.layer(*layers), 46 * len(names) + 20)


@specification.register(Slopes)
def _slopes(plot: Slopes) -> JsonObject:
    base = alt.Chart(_values(plot.frame))
    x = alt.X("x:N", title=None, axis=alt.Axis(labelAngle=0), scale=alt.Scale(padding=0.3))
    y = alt.Y("y:Q", title=plot.y_title, scale=alt.Scale(zero=False), axis=alt.Axis(labelExpr=_CHANGE))
    lines = base.mark_line(strokeWidth=1.2, opacity=0.75, color="var(--s0)", aria=False).encode(
        x=x, y=y, detail="pair:N"
    )
    told = [alt.Tooltip("facet:N", title="metric"), alt.Tooltip("x:N", title="side"), alt.Tooltip("pair:N")]
    told += [alt.Tooltip("y:Q", title=plot.y_title), alt.Tooltip("value:Q")]
    points = base.mark_point(filled=True, size=40, color="var(--s0)", opacity=1).encode(x=x, y=y, tooltip=told)
    column = alt.Facet("facet:N", title=None, sort=list(dict.fromkeys(plot.frame["facet"])))
    small = alt.layer(lines, points).properties(width=190, height=180).facet(facet=column, columns=3)
    return _finished(plot, small.to_dict(validate=False))


def _whole(plot: Plot, chart: alt.Chart | alt.LayerChart | alt.FacetChart, height_px: int) -> JsonObject:
    sized = chart.properties(width="container", height=height_px).to_dict(validate=False)
    return _finished(plot, {**sized, "autosize": {"type": "fit-x", "contains": "padding"}})


def _finished(plot: Plot, found: JsonObject) -> JsonObject:
    """With the site's configuration, which altair's checks would not let through (colours of the page)."""
    return to_object({**found, "description": f"{plot.title}. {plot.description}", "config": _CONFIG})


def _values(frame: pd.DataFrame) -> alt.Data:
    return alt.Data(values=to_plain(frame.to_dict("records")))


def _kind(plot: Lines) -> Literal["ordinal", "quantitative"]:
    return "ordinal" if plot.scale == "ordinal" else "quantitative"


def _x_of(plot: Lines) -> alt.X:
    values = sorted(set(plot.frame["x"]))
    if plot.scale == "ordinal":
        axis, scale = alt.Axis(labelAngle=0), alt.Scale(padding=0.5)
        return alt.X("x", title=plot.x_title, type="ordinal", axis=axis, scale=scale)
    if plot.scale == "log2":
        scale = alt.Scale(type="log", base=2, nice=False, padding=20)
        axis = alt.Axis(values=values, format="~d", grid=False)
        return alt.X("x", title=plot.x_title, type="quantitative", scale=scale, axis=axis)
    axis = alt.Axis(grid=False, labelExpr=_NUMBER, tickCount=10) if plot.scale == "number" else _whole_numbers()
    scale = alt.Scale(zero=False, nice=False, padding=12)
    return alt.X("x", title=plot.x_title, type="quantitative", scale=scale, axis=axis)


def _whole_numbers() -> alt.Axis:
    """They count from 1: the room left of it is no zero."""
    return alt.Axis(grid=False, tickMinStep=1, labelExpr="datum.value < 1 ? '' : format(datum.value, 'd')")


def _colour(styles: dict[str, Style], field: str = "series") -> alt.Color:
    scale = alt.Scale(domain=list(styles), range=[f"var(--{style.colour})" for style in styles.values()])
    return alt.Color(f"{field}:N", legend=None, scale=scale)


def _shapes(styles: dict[str, Style]) -> alt.Scale:
    return alt.Scale(domain=list(styles), range=[style.shape for style in styles.values()])


def _dashes(styles: dict[str, Style]) -> alt.Scale:
    return alt.Scale(domain=list(styles), range=[list(style.dash) for style in styles.values()])
