"""Charts as Vega-Lite specifications, made with altair, with the data inline. Colours are the page's CSS variables.

Charts thus follow the page into dark mode and print without being redrawn. The accessible name of every SVG mark is its
values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import altair as alt

from specbench.harness.store.files import to_object, to_plain
from specbench.workloads.json_values import JsonObject

from .chart import Axis, Chart

_INK, _QUIET, _LINE = "var(--text)", "var(--quiet)", "var(--line)"
_HEIGHT_PX, _ROW_PX = 280, 42
_CROWDED = 30  # points per line, above which they are drawn smaller
_LABEL_PX = 260  # for names beside horizontal bars; longer ones are cut here and whole in the table
# For axis labels only: a format set on the axis would also round the values in the marks' accessible names.
_FORMATS = {"number": ",.4~r", "share": ".0%", "change": "+.1~%"}
_FROM_ONE = "datum.value < 1 ? '' : format(datum.value, 'd')"  # the axis begins left of 1: no labels there
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
    """The Vega-Lite specification as plain data. Data and the site's configuration are added last: altair copies
    the data many times, and its checks do not know the page's colours."""
    frame = chart.frame
    if "part" in frame:
        frame = frame.assign(order=frame["part"].map(list(chart.styles).index))
    layers = alt.layer(*_behind(chart), *_values(chart), *_beside(chart), data=alt.Data(name="values"))
    if "facet" in frame:
        facet = alt.Facet("facet:N", title=None, sort=list(dict.fromkeys(frame["facet"])))
        small = layers.properties(width=190, height=180).facet(facet=facet, columns=3)
        found = small.to_dict(validate=False)
    else:
        height = _ROW_PX * len(chart.names) + 20 if chart.names else _HEIGHT_PX
        found = layers.properties(width="container", height=height).to_dict(validate=False)
        found["autosize"] = {"type": "fit-x", "contains": "padding"}
    found |= {"data": {"values": to_plain(frame.to_dict("records"))}, "config": _CONFIG}
    return to_object({**found, "description": f"{chart.title}. {chart.description}"})


def _behind(chart: Chart) -> Iterator[alt.Chart | alt.LayerChart]:
    """What is drawn behind the values: a line across the chart, a band about 0, events, each with its own data."""
    if chart.rule is not None:
        yield _own([{"y": chart.rule}]).mark_rule(strokeWidth=1.5, aria=False).encode(y=_y(chart))
    if chart.margin is not None:
        band = _own([{"from": -chart.margin, "to": chart.margin}]).mark_rect(color=_LINE, opacity=0.6, aria=False)
        yield band.encode(x=_x(chart, "from"), x2="to:Q")
        yield _own([{"x": 0}]).mark_rule(aria=False, color=_INK).encode(x=_x(chart))
    if chart.events:
        base = _own([{"x": at, "text": text} for at, text in chart.events]).encode(x=_x(chart))
        yield base.mark_rule(strokeDash=[4, 3], aria=False)
        texts = base.mark_text(align="center", baseline="bottom", dy=-3, fontSize=11)
        yield texts.encode(y=alt.value(0), text="text:N")


def _values(chart: Chart) -> Iterator[alt.Chart]:
    if chart.marks == "bars":
        yield _bars(chart)
    if chart.has("low"):
        ends = alt.Chart().mark_rule(strokeWidth=2.5 if chart.names else 1.5, aria=False)
        ends = ends.transform_filter("isValid(datum.low)")
        if chart.names:
            yield ends.encode(x=_x(chart, "low"), x2="high", y=_y(chart), color=alt.value(_INK))
        else:
            yield ends.encode(x=_x(chart), y=_y(chart, "low"), y2="high", **_colour(chart))
    if chart.has_lines:
        yield _lines(chart)
    if chart.marks != "bars":
        is_crowded = len(chart.frame) > _CROWDED * max(len(chart.styles), 1)
        size = 40 if "facet" in chart.frame else 90 if chart.names else 14 if is_crowded else 60
        points = alt.Chart().mark_point(filled=True, size=size, opacity=1, shape="diamond" if chart.names else "circle")
        if chart.styles:
            points = points.encode(shape=alt.Shape("series:N", legend=None, scale=_scale(chart, "shape")))
        yield points.encode(x=_x(chart), y=_y(chart), tooltip=_spoken(chart), **_colour(chart))


def _bars(chart: Chart) -> alt.Chart:
    if chart.names:
        bars = alt.Chart().mark_bar(stroke="var(--ground)", strokeWidth=1, height={"band": 0.62})
        bars = bars.encode(x=_x(chart).stack("zero"), order=alt.Order("order:Q"))
    else:
        bars = alt.Chart().mark_bar(stroke=_INK, strokeWidth=0.5).encode(x=_x(chart))
        bars = bars.encode(xOffset=alt.XOffset("series:N", sort=list(chart.styles)))
    return bars.encode(y=_y(chart), tooltip=_spoken(chart), **_colour(chart))


def _lines(chart: Chart) -> alt.Chart:
    way: Literal["step-after", "linear"] = "step-after" if chart.marks == "steps" else "linear"
    lines = alt.Chart().mark_line(strokeWidth=2, aria=False, interpolate=way)
    lines = lines.encode(x=_x(chart), y=_y(chart), **_colour(chart))
    if not chart.styles:
        return lines.encode(detail="pair:N", strokeWidth=alt.value(1), opacity=alt.value(0.6))
    if "dashed" in chart.frame:
        scale = alt.Scale(domain=[False, True], range=[[1, 0], [3, 3]])
        return lines.encode(strokeDash=alt.StrokeDash("dashed:N", legend=None, scale=scale))
    return lines.encode(strokeDash=alt.StrokeDash("series:N", legend=None, scale=_scale(chart, "dash")))


def _beside(chart: Chart) -> Iterator[alt.Chart]:
    """Ticks and words."""
    if chart.has("least"):
        ticks = alt.Chart().mark_tick(thickness=2, size=12, color="var(--s1)", aria=False)
        yield ticks.transform_filter("isValid(datum.least)").encode(x=_x(chart, "least"), y=_y(chart))
    if chart.words:
        is_number = _kind(chart, chart.words) == "quantitative"
        text = alt.Text(f"{chart.words}:Q", format=",.4~r") if is_number else alt.Text(f"{chart.words}:N")
        place = {"dx": 6, "align": "left"} if chart.words_beside else {"dy": -12}
        words = alt.Chart().mark_text(aria=False, **place).transform_filter(f"isValid(datum['{chart.words}'])")
        yield words.encode(x=_x(chart, chart.words_beside or "x"), y=_y(chart), text=text)


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
    scale = alt.Scale(domain=axis.range) if axis.range else alt.Scale(zero=chart.marks == "bars", nice=True)
    labels = alt.Axis(labelExpr=_label(axis))
    return alt.Y(column, type="quantitative", title=axis.title, scale=scale, axis=labels)


def _label(axis: Axis) -> str:
    return f"format(datum.value, '{_FORMATS[axis.unit]}')"


def _colour(chart: Chart) -> dict[str, Any]:
    if not chart.styles:
        return {"color": alt.value(_INK)}
    scale = alt.Scale(domain=list(chart.styles), range=[f"var(--{style.colour})" for style in chart.styles.values()])
    return {"color": alt.Color("part:N" if "part" in chart.frame else "series:N", legend=None, scale=scale)}


def _scale(chart: Chart, what: str) -> alt.Scale:
    return alt.Scale(domain=list(chart.styles), range=[getattr(style, what) for style in chart.styles.values()])


def _spoken(chart: Chart) -> list[alt.Tooltip]:
    """The values that a mark shows, in the order of the frame's columns."""
    titles = {"x": chart.x.title, "y": chart.y.title, "facet": "metric"}
    names = [str(name) for name in chart.frame if name != "dashed"]
    return [alt.Tooltip(name, type=_kind(chart, name), title=titles.get(name, name)) for name in names]


def _kind(chart: Chart, column: str) -> Literal["quantitative", "nominal"]:
    return "quantitative" if chart.frame[column].dtype.kind in "fi" else "nominal"


def _own(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))
