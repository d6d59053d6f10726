"""The layers of equal charts are made once: two that differ in anything but rows must not share them."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from specbench.reports.charts.chart import Axis, Chart, Style
from specbench.reports.charts.form import form_of
from specbench.reports.charts.vega import specification

FRAME = pd.DataFrame(
    {"series": ["a", "a", "b", "b"], "x": [1, 2, 1, 2], "y": [1.0, 2.0, 3.0, 4.0], "low": [float("nan")] * 4}
)
PLAIN = Chart(
    name="c",
    title="Speed",
    description="Of two.",
    frame=FRAME,
    x=Axis(title="concurrency"),
    y=Axis(title="ms"),
    marks="lines",
    styles={"a": Style(colour="s0"), "b": Style(colour="s1")},
)
OTHERS = {
    "the title of an axis": replace(PLAIN, x=Axis(title="requests")),
    "marks": replace(PLAIN, marks="points"),
    "a style": replace(PLAIN, styles={"a": Style(colour="s2"), "b": Style(colour="s1")}),
    "a rule": replace(PLAIN, rule=1.0),
    "events": replace(PLAIN, events=((1.0, "step"),)),
    "words": replace(PLAIN, words="y"),
    "ticks": replace(PLAIN, x=Axis(title="concurrency", scale="log2")),
    "a column": replace(PLAIN, frame=FRAME.assign(note="n")),
    "the kind of a column": replace(PLAIN, frame=FRAME.assign(x=["1", "2", "1", "2"])),
    "a known interval": replace(PLAIN, frame=FRAME.assign(low=0.5, high=5.0)),
    "one line upon another": replace(PLAIN, frame=FRAME.assign(y=[1.0, 2.0, 1.0, 2.0])),
    "many points": replace(PLAIN, frame=pd.concat([FRAME] * 20, ignore_index=True)),
    "small charts": replace(PLAIN, frame=FRAME.assign(facet=["f", "g", "f", "g"])),
}


@pytest.mark.parametrize("what", OTHERS)
def test_charts_that_differ_have_layers_of_their_own(what):
    plain, other = specification(PLAIN), specification(OTHERS[what])
    assert form_of(PLAIN) != form_of(OTHERS[what])
    assert plain["layer"] != (other["layer"] if "layer" in other else other["spec"]["layer"])


def test_charts_that_differ_in_rows_share_their_layers_and_show_their_own_rows():
    other = replace(PLAIN, title="Other", frame=FRAME.assign(y=[5.0, 6.0, 7.0, 8.0]))
    plain, found = specification(PLAIN), specification(other)
    assert form_of(PLAIN) == form_of(other) and plain["layer"] == found["layer"]
    assert [row["y"] for row in found["data"]["values"]] == [5.0, 6.0, 7.0, 8.0]
    assert found["description"] == "Other. Of two." and plain["data"]["values"][0]["low"] is None


def test_a_page_that_changes_its_specification_changes_no_other():
    specification(PLAIN)["layer"].clear()
    assert specification(PLAIN)["layer"]
