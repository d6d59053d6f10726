"""Numbers of 1,000 and more read alike in tables, at the ticks of both kinds of charts, and beside their bars."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from matplotlib.figure import Figure

from specbench.reports.cells import milliseconds, number
from specbench.reports.charts.chart import Axis, Chart, Style
from specbench.reports.charts.data_table import data_table
from specbench.reports.charts.pictures import draw
from specbench.reports.charts.vega import specification


def lines(scale) -> Chart:
    frame = pd.DataFrame({"series": ["a"] * 3, "x": [64, 1024, 4096], "y": [999.5, 1250.0, 23266.4]})
    return Chart(
        name="c",
        title="Speed",
        description="",
        frame=frame,
        x=Axis(title="concurrency", scale=scale),
        y=Axis(title="tokens per second"),
        marks="lines",
        styles={"a": Style(colour="s0")},
    )


def bars() -> Chart:
    frame = pd.DataFrame({"y": ["a", "b"], "part": ["verify"] * 2, "x": [812.5, 12345.6], "total": [812.5, 12345.6]})
    return Chart(
        name="b",
        title="Round",
        description="",
        frame=frame,
        x=Axis(title="µs"),
        y=Axis(title="strategy", scale="names"),
        marks="bars",
        styles={"verify": Style(colour="verify")},
        words="total",
        words_beside="total",
    )


def drawn(chart):
    figure = Figure(figsize=(8, 4))
    axes = figure.add_subplot()
    draw(chart, axes, chart.frame)
    figure.canvas.draw()
    return axes


def big(texts) -> list[str]:
    return [text for text in texts if len(text.replace(",", "").lstrip("\N{MINUS SIGN}").partition(".")[0]) > 3]


@pytest.mark.parametrize("scale", ["log2", "number", "whole", "ordinal"])
def test_ticks_of_pictures(scale):
    axes = drawn(lines(scale))
    for line in (axes.xaxis, axes.yaxis):
        found = big([label.get_text() for label in line.get_majorticklabels()])
        assert found and all("," in text for text in found), found
    if scale == "log2":
        assert [label.get_text() for label in axes.get_xticklabels()] == ["64", "1,024", "4,096"]


def test_words_beside_bars_and_the_table_below_read_alike():
    table = data_table(bars())
    assert [text.get_text() for text in drawn(bars()).texts] == ["812.5", "12,346"]
    assert [row[-1] for row in table.rows] == ["812.5", "12,346"] == [number(v) for v in (812.5, 12345.6)]
    assert [row[1] for row in data_table(lines("log2")).rows] == ["64", "1,024", "4,096"]


@pytest.mark.parametrize("scale", ["log2", "number", "whole"])
def test_every_tick_of_a_page_has_a_format_with_commas(scale):
    text = json.dumps(specification(lines(scale)))
    wanted = {"log2": '"format": ",d"', "number": "',.6~r'", "whole": "',d'"}[scale]
    assert wanted in text and "~d" not in text


@pytest.mark.parametrize(
    ("value", "text"), [(999.94, "999.9"), (999.96, "1,000"), (-999.96, "-1,000"), (1000, "1,000")]
)
def test_what_rounds_to_a_thousand_is_written_as_one(value, text):
    assert number(value) == milliseconds(value) == text
