"""What is plotted: frames against the runs they come from, thinned histories, changes of the environment."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest
from profile_samples import eagle_profile
from site_samples import ARMS, EAGLE, add_trace, copied, experiment_run, finished_run

from specbench.harness.judge.history.accepted import Accepted
from specbench.reports.charts.chart import Axis, Chart, Styles, phase_styles
from specbench.reports.charts.data_table import data_table
from specbench.reports.charts.vega import specification
from specbench.reports.run.charts import histogram_frame, phase_frame, position_frame
from specbench.reports.site.anatomy_page import trace_frame
from specbench.reports.site.changes import changes_table
from specbench.reports.site.compare_page import matrix_table
from specbench.reports.site.groups import by_case, by_load
from specbench.reports.site.history_series import history_frame, num_searched_commits, points, series_histories
from specbench.reports.site.runs import read_site_runs
from specbench.reports.site.verdict_charts import interval_frame, slope_frame


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    found = [
        finished_run(folder, started=f"2026-02-0{n + 1}T00:00:00Z", concurrency=c) for n, c in enumerate((1, 8, 64))
    ]
    add_trace(found[0])
    return read_site_runs(found)[0]


def test_the_matrix_says_speedups_by_load(sweep):
    (group,) = by_load(sweep)
    table = matrix_table(group)
    assert table.headers == ("strategy", "concurrency 1", "concurrency 8", "concurrency 64")
    assert [row[0] for row in table.rows] == list(ARMS) and table.rows[1][1].endswith("x)")
    assert len(by_case(sweep)) == 3


def test_acceptance_frames(sweep):
    positions, histogram = position_frame(sweep[0].arms), histogram_frame(sweep[0].arms)
    eagle = next(arm for arm in sweep[0].arms if arm.label == EAGLE)
    solid = positions[(positions["series"] == EAGLE) & ~positions["dashed"]]
    assert list(solid["y"]) == list(eagle.acceptance.marginal) and list(solid["x"]) == [1, 2, 3, 4]
    assert histogram.groupby("series")["y"].sum().to_list() == pytest.approx([1.0, 1.0])


def test_phases_and_traces(sweep):
    traced = next(run for run in sweep if run.profiles)
    frame = phase_frame(traced.arms)
    of_eagle = frame[frame["y"] == EAGLE].set_index("part")["x"]
    assert of_eagle.to_dict() == pytest.approx({"gap": 1.0, "verify": 6.7875, "draft_first": 2.2625}, rel=0.01)
    trace = trace_frame(traced).set_index("part")["x"]
    assert trace["GPU idle"] == eagle_profile().idle.total_ns / 1e3 and trace["verify"] == 512.0
    styles = phase_styles(trace.index)
    assert styles["GPU idle"].colour == "host" and len({styles[f"draft step {n}"].colour for n in range(4)}) == 4


def test_verdict_frames(tmp_path):
    (run,), _ = read_site_runs([experiment_run(tmp_path, change=0.03)])
    intervals, slopes = interval_frame(run.ab).set_index("y"), slope_frame(run.ab)
    assert intervals.loc["step time", "x"] == pytest.approx(0.03, abs=0.003)
    assert intervals.loc["step time", "verdict"] == "▼ regressed" and intervals.loc["TPS", "verdict"] == "exploratory"
    step = slopes[slopes["facet"] == "step time"]
    assert len(step) == 20 and step[step["x"] == "A"]["y"].mean() == pytest.approx(0, abs=1e-12)
    assert {arm.label for arm in run.arms} == {"A: eagle:k=2", "B: eagle:k=4"}


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    folder = tmp_path_factory.mktemp("history")
    first = finished_run(folder / "first", started="2026-01-01T00:00:00Z")
    made = [
        copied(
            first, folder, n, started=f"2026-02-{n + 1:02d}T00:00:00Z", sha=f"{n:02x}" * 20, scale=1.1 if n > 9 else 1
        )
        for n in range(20)
    ]
    return read_site_runs(made)[0]


def test_history_finds_the_step_and_counts_commits_from_the_oldest(history):
    own = [
        s for s in series_histories(points(history), [], 4)[0] if s.series.metric == "step_ms" and s.series.arm == EAGLE
    ]
    ((step,),) = [story.steps for story in own]
    assert step.change == pytest.approx(0.1) and step.after.commit == "0a" * 20
    frame = history_frame(own, 100)
    assert list(frame["x"]) == list(range(1, 21)) and frame["y"].iloc[-1] / frame["y"].iloc[0] == pytest.approx(1.1)
    known = series_histories(points(history), [Accepted(commit="0a" * 20)], 4)[0]
    assert all(step.accepted for story in known for step in story.steps)


def test_a_long_history_is_thinned_and_keeps_its_newest(history):
    own = [
        s for s in series_histories(points(history), [], 4)[0] if s.series.metric == "step_ms" and s.series.arm == EAGLE
    ]
    assert list(history_frame(own, 8)["x"]) == [1, 8, 15, 16, 17, 18, 19, 20]


def test_a_newest_point_that_stands_out_is_a_suspect(history, tmp_path):
    newest = copied(history[0].path, tmp_path, 98, started="2026-03-09T00:00:00Z", sha="ab" * 20, scale=1.2)
    found, num_cases = series_histories(points([*read_site_runs([newest])[0], *history]), [], 4)
    suspects = {(s.series.metric, s.commit.commit) for story in found for s in story.suspects}
    assert ("step_ms", "ab" * 20) in suspects and num_cases == 1


def test_many_series_are_searched_less_far():
    assert [num_searched_commits(n) for n in (1, 13, 48, 1000)] == [150, 150, 79, 40]


def test_experiments_are_no_part_of_a_history(tmp_path):
    assert points(read_site_runs([experiment_run(tmp_path)])[0]) == []


def test_changes_of_the_environment(history, tmp_path):
    assert changes_table(history) is None
    newer = copied(history[0].path, tmp_path, 99, started="2026-04-01T00:00:00Z", sha="ee" * 20)
    raw = json.loads((newer / "run.json").read_text())
    raw["environment"]["software"]["python"] = "3.12"
    (newer / "run.json").write_text(json.dumps(raw))
    table = changes_table([*read_site_runs([newer])[0], *history])
    assert table.rows == (("2026-04-01T00:00:00Z", "ee" * 6, "software.python", "3.11", "3.12"),)


def test_machines_in_turn_are_one_change_each_and_other_workloads_none(history, tmp_path):
    other = finished_run(tmp_path, started="2026-03-31T00:00:00Z", concurrency=8, sha="ff" * 20)
    newer = copied(history[0].path, tmp_path, 99, started="2026-04-01T00:00:00Z", sha="ee" * 20)
    for path in (other, newer):
        raw = json.loads((path / "run.json").read_text())
        raw["environment"]["hardware"]["cpu"] = {"model": "Another CPU", "logical_cores": 64}
        (path / "run.json").write_text(json.dumps(raw))
    table = changes_table([*read_site_runs([newer, other])[0], *history])
    machines = ("Test CPU (4 logical cores)", "Another CPU (64 logical cores)")
    assert table.rows == (("2026-04-01T00:00:00Z", "ee" * 6, "hardware", *machines),)


def test_styles_differ_in_more_than_colour_and_stay_the_same():
    styles = Styles()
    names = [f"arm {n}" for n in range(20)]
    given = styles.of(names)
    looks = [(style.colour, style.shape) for style in given.values()]
    assert len(set(looks)) == 20 and styles.of(["arm 3"])["arm 3"] == given["arm 3"]


def test_missing_ends_are_neither_drawn_nor_written_as_numbers():
    frame = pd.DataFrame([{"series": "a", "x": 1, "y": 1.5, "low": math.nan, "high": math.nan}])
    chart = Chart(
        name="p",
        title="t",
        description="d",
        frame=frame,
        x=Axis(title="x", scale="log2"),
        y=Axis(title="y"),
        marks="lines",
        styles=Styles().of(["a"]),
    )
    json.dumps(specification(chart), allow_nan=False)
    assert data_table(chart).rows == (("a", "1", "1.5", "-", "-"),)
