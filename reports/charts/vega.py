"""Charts as Vega-Lite specifications, made with altair, with the data inline.

Colours are the page's CSS variables, so charts follow the page into dark mode and print without being redrawn. The
accessible name of every SVG mark is its values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

import altair as alt
from altair.utils.schemapi import debug_mode

from specbench.harness.store.files import to_object
from specbench.workloads.json_values import Json, JsonObject

from .chart import Axis, Chart
from .form import Form, form_of

_INK, _QUIET, _LINE = "var(--text)", "var(--quiet)", "var(--line)"
_HEIGHT_PX, _ROW_PX = 280, 42
_CHARACTER_PX, _STROKE_PX, _FAINT = 7, 2, 0.6
_TICK_PX = 22  # half of the longest tick label, which may be at the very end
_LABEL_PX = 260  # for names next to horizontal bars; longer ones are cut here and complete in the table
# For axis labels only: a format set on the axis would also round the values in the marks' accessible names.
_FORMATS = {"number": ",.6~r", "share": ".0%", "change": "+.1~%", "factor": ",.4~r"}
_AS_TABLES = "abs({0}) < 1000 ? format({0}, '.4~r') : format({0}, ',.0f')"  # as `number` writes it
_FROM_ONE = "datum.value < 1 ? '' : format(datum.value, ',d')"  # the axis begins left of 1: no labels there
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
        "labelSeparation": 6,
    },
    "header": {"labelColor": _INK, "titleColor": _INK, "labelFontSize": 12},
    "text": {"color": _INK, "fontSize": 12},
    "rule": {"color": _QUIET},
}


def specification(chart: Chart) -> JsonObject:
    """The Vega-Lite specification as plain data. altair makes the layers, and this module combines them: altair's own
    layering and facets copy every layer many times, and its checks do not know the page's colours."""
    frame = chart.frame
    if "part" in frame:
        frame = frame.assign(order=frame["part"].map(list(chart.styles).index))
    layers = list(_layers(form_of(chart)))
    found: dict[str, Json] = {"$schema": alt.SCHEMA_URL}
    if "facet" in frame:
        order: list[Json] = list(dict.fromkeys(map(str, frame["facet"].tolist())))
        found["facet"] = {"field": "facet", "type": "nominal", "title": None, "sort": order}
        found |= {"columns": 3, "spec": {"layer": layers, "width": 190, "height": 180}}
        if chart.y.spans == "each":
            found["resolve"] = {"scale": {"y": "independent"}}
    else:
        found |= {
            "layer": layers,
            "width": "container",
            "height": _ROW_PX * len(chart.names) + 20 if chart.names else _HEIGHT_PX,
        }
        found["autosize"] = {"type": "fit-x", "contains": "padding"}
        found["padding"] = {"left": 5, "top": 5, "bottom": 5, "right": 5 if chart.x.scale == "ordinal" else _TICK_PX}
    if chart.names:
        found["usermeta"] = {"names": chart.names}  # the page folds them to the width that it has
    columns = {str(name): own.tolist() for name, own in frame.items()}
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    data = {"values": values}
    return to_object({**found, "data": data, "config": _CONFIG, "description": f"{chart.title}. {chart.description}"})


@lru_cache(maxsize=1 << 8)  # altair takes longer than all else; a site has few forms for its many charts
def _layers(form: Form) -> tuple[JsonObject, ...]:
    with debug_mode(False):  # else each part is checked as it is made, which is most of the time and finds nothing
        return tuple(_plain(one) for one in (*_behind(form), *_values(form), *_beside(form)))


def _behind(form: Form) -> Iterator[alt.Chart]:
    """Layers behind the values: a line across the chart, a band about 0, events, each with its own data."""
    if form.rule is not None:
        line = _own([{"at": form.rule}]).mark_rule(strokeWidth=1.5, aria=False)
        yield line.encode(x=_x(form, "at")) if form.names else line.encode(y=_y(form, "at"))
    if form.margin is not None:
        band = _own([{"from": -form.margin, "to": form.margin}]).mark_rect(color=_LINE, opacity=0.6, aria=False)
        yield band.encode(x=_x(form, "from"), x2="to:Q")
        yield _own([{"x": 0}]).mark_rule(aria=False, color=_INK).encode(x=_x(form))
    if form.events:
        base = _own([{"x": at, "text": text} for at, text in form.events]).encode(x=_x(form))
        yield base.mark_rule(strokeDash=[4, 3], aria=False)
        texts = base.mark_text(align="center", baseline="bottom", dy=-3, fontSize=11)
        yield texts.encode(y=alt.value(0), text="text:N")


def _values(form: Form) -> Iterator[alt.Chart]:
    if form.marks == "bars":
        yield _bars(form)
    if "low" in form.known:
        ends = alt.Chart().mark_rule(strokeWidth=2.5 if form.names else 1.5, aria=False)
        ends = ends.transform_filter("isValid(datum.low)")
        if form.names:
            yield ends.encode(x=_x(form, "low"), x2="high", y=_y(form), color=alt.value(_INK))
        else:
            yield ends.encode(x=_x(form), y=_y(form, "low"), y2="high", **_colour(form))
    if form.has_lines:
        yield _lines(form)
    if form.marks != "bars":
        size = 40 if "facet" in form.columns else 90 if form.names else 14 if form.is_crowded else 60
        points = alt.Chart().mark_point(filled=True, size=size, opacity=1, shape="diamond" if form.names else "circle")
        if form.styles:
            points = points.encode(shape=alt.Shape("series:N", legend=None, scale=_scale(form, "shape")))
        if under := dict(form.under):
            sizes = alt.Scale(type="ordinal", domain=list(under), range=[size * (1 + 2 * n) for n in under.values()])
            points = points.encode(size=alt.Size("series:O", legend=None, scale=sizes))
        yield points.encode(x=_x(form), y=_y(form), tooltip=_spoken(form), **_colour(form))


def _bars(form: Form) -> alt.Chart:
    if form.names:
        bars = alt.Chart().mark_bar(height={"band": 0.62})  # no stroke: it would cover parts of a few µs
        bars = bars.encode(x=_x(form).stack("zero"), order=alt.Order("order:Q"))
    else:
        bars = alt.Chart().mark_bar(stroke=_INK, strokeWidth=0.5).encode(x=_x(form))
        bars = bars.encode(xOffset=alt.XOffset("series:N", sort=form.series))
    return bars.encode(y=_y(form), tooltip=_spoken(form), **_colour(form))


def _lines(form: Form) -> alt.Chart:
    way: Literal["step-after", "linear"] = "step-after" if form.marks == "steps" else "linear"
    lines = alt.Chart().mark_line(strokeWidth=_STROKE_PX, aria=False, interpolate=way)
    lines = lines.encode(x=_x(form), y=_y(form), **_colour(form))
    if form.along != "x":
        lines = lines.encode(order=f"{form.along}:Q")
    if not form.styles:
        return lines.encode(detail="pair:N", strokeWidth=alt.value(1), opacity=alt.value(0.6))
    if under := dict(form.under):
        widths = alt.Scale(type="ordinal", domain=list(under), range=[_STROKE_PX * (1 + 3 * n) for n in under.values()])
        lines = lines.encode(strokeWidth=alt.StrokeWidth("series:O", legend=None, scale=widths))
    if "dashed" in form.columns:
        scale = alt.Scale(domain=[False, True], range=[[1, 0], [3, 3]])
        faint = alt.Scale(domain=[False, True], range=[1, _FAINT])
        lines = lines.encode(opacity=alt.Opacity("dashed:O", legend=None, scale=faint))
        return lines.encode(strokeDash=alt.StrokeDash("dashed:N", legend=None, scale=scale))
    return lines.encode(strokeDash=alt.StrokeDash("series:N", legend=None, scale=_scale(form, "dash")))


def _beside(form: Form) -> Iterator[alt.Chart]:
    """Ticks and words."""
    if "least" in form.known:
        ticks = alt.Chart().mark_tick(thickness=2, size=12, color="var(--s1)", aria=False)
        ticks = ticks.transform_filter("isValid(datum.least)").transform_calculate(minus="-datum.least")
        for end in ("least", "minus"):
            yield ticks.encode(x=_x(form, end), y=_y(form))
    if form.words:
        is_number = form.kind(form.words) == "quantitative"
        field = re.sub(r"([\[\].])", r"\\\1", form.words)  # Vega reads brackets and dots as a path
        text = alt.Text("word:N") if is_number else alt.Text(f"{field}:N")
        place = {"dx": 6, "align": "left"} if form.words_beside else {"dy": -12}
        words = alt.Chart().mark_text(aria=False, **place).transform_filter(f"isValid(datum['{form.words}'])")
        if is_number:
            words = words.transform_calculate(word=_AS_TABLES.format(f"datum['{form.words}']"))
        yield words.encode(x=_x(form, form.words_beside or "x"), y=_y(form), text=text)


def _x(form: Form, column: str = "x") -> alt.X:
    axis, has_grid = form.x, bool(form.names)
    if axis.scale == "ordinal":
        return alt.X(column, type="ordinal", title=None if "facet" in form.columns else axis.title).axis(labelAngle=0)
    if axis.scale == "log2":
        scale = alt.Scale(type="log", base=2, nice=False, padding=20)
        ticks = alt.Axis(grid=has_grid, values=list(form.ticks), format=",d")
    else:
        scale = alt.Scale(zero=False, nice=False, padding=_padding_px(form))
        ticks = alt.Axis(grid=has_grid, labelExpr=_label(axis), tickCount=10)
    if axis.range:
        scale = alt.Scale(domain=axis.range)
    if axis.scale == "whole":
        ticks = alt.Axis(grid=has_grid, labelExpr=_FROM_ONE, tickMinStep=1)
    return alt.X(column, type="quantitative", title=axis.title, scale=scale, axis=ticks)


def _y(form: Form, column: str = "y") -> alt.Y:
    axis = form.y
    if axis.scale == "names":
        return alt.Y(column, type="nominal", title=None, sort=list(form.names))
    scale = (
        alt.Scale(domain=axis.range)
        if axis.range
        else alt.Scale(zero=form.marks == "bars" or axis.spans == "each", nice=True)
    )
    labels = alt.Axis(labelExpr=_label(axis))
    return alt.Y(column, type="quantitative", title=axis.title, scale=scale, axis=labels)


def _padding_px(form: Form) -> float:
    """Space at both ends for half of the longest text above a value."""
    if not form.names:
        return 24 if form.words else 12
    return max(45, form.longest_word * _CHARACTER_PX / 2)


def _label(axis: Axis) -> str:
    return f"format(datum.value, '{_FORMATS[axis.unit]}')" + " + 'x'" * (axis.unit == "factor")


def _colour(form: Form) -> dict[str, Any]:
    if not form.styles:
        return {"color": alt.value(_INK)}
    scale = alt.Scale(domain=form.series, range=[f"var(--{style.colour})" for _, style in form.styles])
    return {"color": alt.Color("part:N" if "part" in form.columns else "series:N", legend=None, scale=scale)}


def _scale(form: Form, what: str) -> alt.Scale:
    return alt.Scale(domain=form.series, range=[getattr(style, what) for _, style in form.styles])


def _spoken(form: Form) -> list[alt.Tooltip]:
    """The values that a mark shows, in the order of the frame's columns."""
    titles = {"x": form.x.title, "y": form.y.title, "facet": "metric"}
    return [alt.Tooltip(name, type=form.kind(name), title=titles.get(name, name)) for name in form.spoken]


def _plain(layer: alt.Chart) -> JsonObject:
    found = to_object(layer.to_dict(validate=False, context={"top_level": False, "datasets": {}}))
    if found["data"] == {"name": "empty"}:  # altair's word for none: the chart's own data are meant
        del found["data"]
    return found


def _own(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))
