"""Charts as Vega-Lite specifications, made with altair, data inlined. Colours are the page's CSS variables.

So a chart follows the page into dark mode and onto paper without being drawn again, and every mark of the SVG has its
values as its accessible name.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, Literal

import altair as alt

from specbench.harness.store.files import to_object, to_plain
from specbench.workloads.json_values import JsonObject

from .chart import Axis, Band, Bars, Chart, Ends, Events, Layer, Line, Points, Rule, Ticks, Words

_INK, _QUIET, _LINE = "var(--text)", "var(--quiet)", "var(--line)"
_HEIGHT_PX, _ROW_PX = 280, 42
_CROWDED = 30  # points of a line, beyond which they are drawn smaller
_LABEL_PX = 260  # of the names beside lying bars; longer ones are cut, the table has them whole
# Of the axes' labels only: a format of the axis would round the values in the marks' accessible names as well.
_FORMATS = {"number": ",.4~r", "share": ".0%", "change": "+.1~%"}
_FROM_ONE = "datum.value < 1 ? '' : format(datum.value, 'd')"  # the axis begins left of 1: no label there
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


def specification(chart: Chart) -> JsonObject:
    """The Vega-Lite specification as plain data. The site's configuration is added last: altair's checks do not know
    colours of the page."""
    frame = chart.frame
    if "part" in frame:
        frame = frame.assign(order=frame["part"].map(list(chart.styles).index))
    layers = alt.layer(*(_drawn(layer, chart) for layer in chart.shown()), data=_values(frame.to_dict("records")))
    if "facet" in frame:
        facet = alt.Facet("facet:N", title=None, sort=list(dict.fromkeys(frame["facet"])))
        found = layers.properties(width=190, height=180).facet(facet=facet, columns=3).to_dict(validate=False)
    else:
        height = _ROW_PX * len(chart.names) + 20 if chart.names else _HEIGHT_PX
        found = layers.properties(width="container", height=height).to_dict(validate=False)
        found["autosize"] = {"type": "fit-x", "contains": "padding"}
    return to_object({**found, "description": f"{chart.title}. {chart.description}", "config": _CONFIG})


@singledispatch
def _drawn(layer: Layer, chart: Chart) -> alt.Chart | alt.LayerChart:
    raise TypeError(f"no drawing for {type(layer).__name__}")


@_drawn.register
def _rule(layer: Rule, chart: Chart) -> alt.Chart:
    return alt.Chart(_values([{"y": layer.value}])).mark_rule(strokeWidth=1.5, aria=False).encode(y=_y(chart))


@_drawn.register
def _band(layer: Band, chart: Chart) -> alt.LayerChart:
    band = alt.Chart(_values([{"from": -layer.margin, "to": layer.margin}]))
    zero = alt.Chart(_values([{"x": 0}])).mark_rule(aria=False, color=_INK).encode(x=_x(chart))
    return band.mark_rect(color=_LINE, opacity=0.6, aria=False).encode(x=_x(chart, "from"), x2="to:Q") + zero


@_drawn.register
def _events(layer: Events, chart: Chart) -> alt.LayerChart:
    base = alt.Chart(_values([{"x": at, "text": text} for at, text in layer.events])).encode(x=_x(chart))
    texts = base.mark_text(align="center", baseline="bottom", dy=-3, fontSize=11)
    return base.mark_rule(strokeDash=[4, 3], aria=False) + texts.encode(y=alt.value(0), text="text:N")


@_drawn.register
def _line(layer: Line, chart: Chart) -> alt.Chart:
    line = alt.Chart().mark_line(strokeWidth=2, aria=False, interpolate="step-after" if layer.is_step else "linear")
    lines = line.encode(x=_x(chart), y=_y(chart), **_colour(chart))
    if "dashed" in chart.frame:
        scale = alt.Scale(domain=[False, True], range=[[1, 0], [3, 3]])
        return lines.encode(strokeDash=alt.StrokeDash("dashed:N", legend=None, scale=scale))
    if chart.styles:
        return lines.encode(strokeDash=alt.StrokeDash("series:N", legend=None, scale=_scale(chart, "dash")))
    return lines.encode(detail="pair:N", strokeWidth=alt.value(1), opacity=alt.value(0.6))


@_drawn.register
def _points(layer: Points, chart: Chart) -> alt.Chart:
    is_crowded = len(chart.frame) > _CROWDED * max(len(chart.styles), 1)
    size = 40 if "facet" in chart.frame else 90 if chart.names else 14 if is_crowded else 60
    points = alt.Chart().mark_point(filled=True, size=size, opacity=1, shape="diamond" if chart.names else "circle")
    points = points.encode(x=_x(chart), y=_y(chart), tooltip=_spoken(chart), **_colour(chart))
    if not chart.styles:
        return points
    return points.encode(shape=alt.Shape("series:N", legend=None, scale=_scale(chart, "shape"), title="series"))


@_drawn.register
def _bars(layer: Bars, chart: Chart) -> alt.Chart:
    if not chart.names:
        bars = alt.Chart().mark_bar(stroke=_INK, strokeWidth=0.5).encode(xOffset=_offset(chart))
        return bars.encode(x=_x(chart), y=_y(chart), tooltip=_spoken(chart), **_colour(chart))
    bars = alt.Chart().mark_bar(stroke="var(--ground)", strokeWidth=1, height={"band": 0.62})
    x = _x(chart).stack("zero")
    return bars.encode(x=x, y=_y(chart), order=alt.Order("order:Q"), tooltip=_spoken(chart), **_colour(chart))


@_drawn.register
def _ends(layer: Ends, chart: Chart) -> alt.Chart:
    rule = alt.Chart().mark_rule(strokeWidth=2.5 if chart.names else 1.5, aria=False)
    ends = rule.transform_filter("isValid(datum.low)")
    if chart.names:
        return ends.encode(x=_x(chart, "low"), x2="high", y=_y(chart), color=alt.value(_INK))
    return ends.encode(x=_x(chart), y=_y(chart, "low"), y2="high", **_colour(chart))


@_drawn.register
def _ticks(layer: Ticks, chart: Chart) -> alt.Chart:
    ticks = alt.Chart().mark_tick(thickness=2, size=12, color="var(--s1)", aria=False)
    return ticks.transform_filter("isValid(datum.least)").encode(x=_x(chart, "least"), y=_y(chart))


@_drawn.register
def _words(layer: Words, chart: Chart) -> alt.Chart:
    is_number = _kind(chart, layer.column) == "quantitative"
    text = alt.Text(layer.column, type="quantitative", format=",.4~r") if is_number else alt.Text(f"{layer.column}:N")
    place = {"dx": 6, "align": "left"} if layer.right_of else {"dy": -12}
    words = alt.Chart().mark_text(aria=False, **place).transform_filter(f"isValid(datum['{layer.column}'])")
    return words.encode(x=_x(chart, layer.right_of or "x"), y=_y(chart), text=text)


def _x(chart: Chart, column: str = "x") -> alt.X:
    axis, has_grid = chart.x, bool(chart.names)
    if axis.scale == "ordinal":
        return alt.X(column, type="ordinal", title=None if "facet" in chart.frame else axis.title).axis(labelAngle=0)
    if axis.scale == "log2":
        scale = alt.Scale(type="log", base=2, nice=False, padding=20)
        ticks = alt.Axis(grid=has_grid, values=sorted(set(chart.frame["x"])), format="~d")
    else:
        scale = alt.Scale(zero=False, nice=False, padding=45 if chart.names else 12)
        ticks = alt.Axis(grid=has_grid, labelExpr=_label(axis), tickCount=10)
    if axis.range:
        scale = alt.Scale(domain=axis.range)
    if axis.scale == "whole":
        ticks = alt.Axis(grid=has_grid, labelExpr=_FROM_ONE, tickMinStep=1)
    return alt.X(column, type="quantitative", title=axis.title, scale=scale, axis=ticks)


def _y(chart: Chart, column: str = "y") -> alt.Y:
    axis = chart.y
    if axis.scale == "names":
        return alt.Y(column, type="nominal", title=None, sort=chart.names)
    has_bars = any(isinstance(layer, Bars) for layer in chart.layers)
    scale = alt.Scale(domain=axis.range) if axis.range else alt.Scale(zero=has_bars, nice=True)
    labels = alt.Axis(labelExpr=_label(axis))
    return alt.Y(column, type="quantitative", title=axis.title, scale=scale, axis=labels)


def _label(axis: Axis) -> str:
    return f"format(datum.value, '{_FORMATS[axis.unit]}')"


def _offset(chart: Chart) -> alt.XOffset:
    return alt.XOffset("series:N", sort=list(chart.styles))


def _colour(chart: Chart) -> dict[str, Any]:
    if not chart.styles:
        return {"color": alt.value(_INK)}
    scale = alt.Scale(domain=list(chart.styles), range=[f"var(--{style.colour})" for style in chart.styles.values()])
    return {"color": alt.Color("part:N" if "part" in chart.frame else "series:N", legend=None, scale=scale)}


def _scale(chart: Chart, what: str) -> alt.Scale:
    return alt.Scale(domain=list(chart.styles), range=[getattr(style, what) for style in chart.styles.values()])


def _spoken(chart: Chart) -> list[alt.Tooltip]:
    """What a mark says of itself, in the order of the frame."""
    titles = {"x": chart.x.title, "y": chart.y.title, "facet": "metric"}
    names = [str(name) for name in chart.frame if name != "dashed"]
    return [alt.Tooltip(name, type=_kind(chart, name), title=titles.get(name, name)) for name in names]


def _kind(chart: Chart, column: str) -> Literal["quantitative", "nominal"]:
    return "quantitative" if chart.frame[column].dtype.kind in "fi" else "nominal"


def _values(rows: Any) -> alt.Data:
    return alt.Data(values=to_plain(rows))
