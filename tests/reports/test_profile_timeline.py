"""The drawing of a median round, and its trace for Perfetto."""

import dataclasses
import json
import random

import pytest
from profile_samples import eagle_profile, fused_profile

from specbench.harness.profiling.record import Bar
from specbench.reports.profile.timeline import GUTTER_PX, MAX_RECTS, MAX_RUNS, WIDTH_PX, fitted, timeline
from specbench.reports.profile.trace import trace_events, trace_json


def bar(t0_ns, t1_ns, phase="verify", row="gpu:7", step=None, via_graph=True, name="k"):
    return Bar(row=row, name=name, phase=phase, draft_step=step, t0_ns=t0_ns, t1_ns=t1_ns, via_graph=via_graph)


def drawn(*bars, span_ns=None):
    return timeline(eagle_profile(timeline=tuple(bars)), "title", span_ns)


def test_wide_bars_stay_apart_and_narrow_neighbours_are_one():
    wide, notes = fitted([bar(0, 100), bar(101, 200)], pixel_ns=10)
    assert len(wide) == 2 and notes == []
    bars = [bar(0, 3_000), bar(4_000, 7_000, name="l"), bar(8_000, 9_000)]
    (joined,), (note,) = fitted(bars, pixel_ns=10_000)
    assert joined == bars
    assert note.startswith("3 bars are merged into 1")


def test_a_joined_rectangle_tells_what_it_covers():
    bars = [bar(0, 3_000), bar(3_001, 7_000, name="l"), bar(8_000, 9_000)]
    (rect,) = drawn(*bars, span_ns=10_000_000).rects
    assert rect.title == "verify: several operations x 3, from a graph; 0.00 to 9.00 µs, 8.00 µs long"


@pytest.mark.parametrize(
    "other", [bar(4, 7, phase="accept"), bar(4, 7, via_graph=False), bar(4, 7, step=1), bar(4, 7, row="gpu:9")]
)
def test_only_bars_alike_are_joined(other):
    pieces, _ = fitted([bar(0, 3), other], pixel_ns=10)
    assert len(pieces) == 2


@pytest.mark.parametrize("seed", range(5))
def test_any_round_fits_into_the_most_rectangles(seed):
    """Alternating phases cannot be joined: the shortest go, and the drawing says so."""
    rng = random.Random(seed)
    bars, t = [], 0
    for i in range(3000):
        length = rng.choice([2, 50, 400])
        phase = "verify" if rng.random() < seed / 4 else ("accept", "draft")[i % 2]
        bars.append(bar(t, t + length, phase=phase, row=f"gpu:{i % 3}"))
        t += length + rng.choice([0, 1, 30])
    picture = drawn(*bars)
    assert 0 < len(picture.rects) <= MAX_RECTS and picture.notes
    assert len(picture.runs) <= MAX_RUNS + 1
    assert all(GUTTER_PX <= r.x and r.x + r.width <= WIDTH_PX for r in picture.rects)
    if seed == 0:
        assert any("shortest rectangles are left out" in note for note in picture.notes)


def test_rows_are_host_waits_then_streams_by_number():
    picture = drawn(bar(0, 9, row="gpu:13"), bar(0, 9, row="gpu:7"), bar(0, 9, row="sync"), bar(0, 9, row="host"))
    assert [lane.text for lane in picture.lanes] == ["host", "sync", "GPU stream 7", "GPU stream 13"]
    assert [lane.y for lane in picture.lanes] == sorted(lane.y for lane in picture.lanes)


def test_bars_from_a_graph_are_twice_as_high_as_others():
    graph, eager, host = (
        drawn(bar(0, 400), bar(500, 900, via_graph=False), bar(0, 9, row="host", via_graph=False)).rects[-2:]
        + drawn(bar(0, 9, row="host", via_graph=False)).rects
    )
    assert graph.height == host.height == 2 * eager.height
    assert graph.y + graph.height == eager.y + eager.height
    assert "from a graph" in graph.title and "launched individually" in eager.title and "launched" not in host.title


def test_two_rounds_share_a_scale():
    short, long = drawn(bar(0, 500_000), span_ns=1_000_000), drawn(bar(0, 1_000_000), span_ns=1_000_000)
    assert short.rects[0].width == pytest.approx(long.rects[0].width / 2)
    assert short.ticks == long.ticks and [tick.text for tick in short.ticks] == [
        "0",
        "200",
        "400",
        "600",
        "800",
        "1,000",
    ]


def test_a_long_round_is_in_milliseconds():
    picture = drawn(bar(0, 1_229_250_000))
    assert picture.unit == "ms" and [tick.text for tick in picture.ticks][-1] == "1,200"
    assert picture.rects[0].title.endswith("0.00 to 1,229 ms, 1,229 ms long") and picture.runs[0][3] == "1,229"
    assert drawn(bar(0, 9_000_000)).unit == "µs"


def test_labels_stand_only_where_they_fit():
    picture = drawn(
        bar(0, 500_000), bar(500_000, 501_000, phase="accept"), bar(501_000, 1_000_000, phase="draft", step=0)
    )
    assert [label.text for label in picture.labels] == ["verify", "draft 0"]
    narrow = drawn(bar(0, 980_000), bar(980_000, 1_000_000, phase="draft", step=3))
    assert [label.text for label in narrow.labels] == ["verify", "d3"]


def test_the_table_holds_what_the_drawing_shows():
    runs = timeline(eagle_profile(), "title").runs
    assert ("GPU stream 7", "verify", "55.0", "599.7", "490.5", "212") in runs
    assert [run[1] for run in runs if run[0] == "GPU stream 7"] == [
        "advance",
        "verify",
        "accept",
        *(f"draft step {i}" for i in range(4)),
    ]


def test_an_empty_timeline_is_no_picture():
    picture = drawn()
    assert picture.rects == () and picture.lanes == ()


def test_perfetto_events_have_the_shape_of_the_format():
    profiles = {"A": eagle_profile(), "B": fused_profile()}
    trace = json.loads(trace_json(profiles))
    assert set(trace) == {"traceEvents", "displayTimeUnit"} and trace["displayTimeUnit"] in ("ms", "ns")
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert processes == {1: "A", 2: "B"}
    for event in trace["traceEvents"]:
        assert event["ph"] in ("X", "M") and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] >= 0 and event["name"] and (event["pid"], event["tid"]) in named
    for pid, profile in enumerate(profiles.values(), start=1):
        events = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == pid]
        assert len(events) == len(profile.timeline)
        assert sum(e["dur"] for e in events) == pytest.approx(sum(b.t1_ns - b.t0_ns for b in profile.timeline) / 1e3)


def test_a_bar_without_name_is_its_phase():
    bars = (bar(0, 5, name="", phase="draft", step=2),)
    (event,) = [e for e in trace_events({"A": dataclasses.replace(eagle_profile(), timeline=bars)})["traceEvents"]][-1:]
    assert event["name"] == "draft step 2" and (event["ts"], event["dur"]) == (0.0, 0.005)


def test_the_hosts_own_ranges_are_called_what_they_are():
    picture = drawn(
        bar(0, 9_000, row="host", phase="host", name="specbench:prepare"),
        bar(10_000, 500_000, row="host", phase="host", name="specbench:round"),
        bar(500_000, 1_000_000, row="host", phase="status", name="specbench:late_status"),
    )
    assert [label.text for label in picture.labels] == ["round", "status"]
