"""The crossover page: of what a sweep stored, of runs alike in all but their load; and what a browser plots of it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from site_samples import EAGLE, HOSTILE, copied, finished_run
from sweep_samples import LOADS, stored_sweep

from specbench.harness.judge import crossover_record as derived
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.charts.chart import Styles
from specbench.reports.charts.pictures import figure
from specbench.reports.experiments.crossover_chart import crossover_chart, crossover_frame
from specbench.reports.experiments.crossover_table import display_names
from specbench.reports.site.build import build_site
from specbench.reports.site.crossover_page import crossover_page
from specbench.reports.site.crossover_records import group_record, stored_sweeps
from specbench.reports.site.find import find_runs
from specbench.reports.site.groups import by_load
from specbench.reports.site.runs import read_site_runs

NAME = f"{EAGLE} (synthetic)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("runs")
    stored_sweep(found)
    return found


@pytest.fixture(scope="module")
def runs(folder):
    found, problems = find_runs([folder])
    assert problems == []
    return read_site_runs(found)[0]


def test_runs_of_a_sweep_are_found_wherever_it_lies(folder):
    (sweep,) = folder.iterdir()
    for given in (folder, sweep, sweep / "sweep.json"):
        found, problems = find_runs([given])
        assert len(found) == 3 and problems == []


def test_a_sweep_is_found_from_among_its_runs(folder, monkeypatch):
    (sweep,) = folder.iterdir()
    monkeypatch.chdir(sweep / "runs")
    assert len(stored_sweeps(read_site_runs(find_runs([Path()])[0])[0])[0]) == 1


def test_a_sweep_is_read_and_not_derived_again(runs, monkeypatch):
    monkeypatch.setattr(derived, "crossover_record", None)
    monkeypatch.setattr("specbench.reports.site.crossover_records.crossover_record", None)
    (section,) = crossover_page(runs, Styles()).sections
    plot, users = section.charts
    (sweep,), problems = stored_sweeps(runs)
    assert problems == () and section.title.startswith("Sweep: ") and "--label" in section.commands[0].text
    assert users.title == "TPS per user against TPS of all users" and set(users.frame["concurrency"]) == set(LOADS)
    cells = {arm.label: arm.points for arm in sweep.record.arms}
    solid = plot.frame[~plot.frame["dashed"] & (plot.frame["series"] == NAME)]
    assert list(solid["x"]) == list(LOADS)
    for column, key in (("y", "ratio"), ("low", "low"), ("high", "high")):
        assert list(solid[column]) == [getattr(cell.tpot, key) for cell in cells[EAGLE]]
    dashed = plot.frame[plot.frame["dashed"] & (plot.frame["series"] == f"{NAME}, ideal")]
    assert list(dashed["y"]) == pytest.approx([3 / math.sqrt(load) for load in LOADS])
    assert plot.styles[NAME] == plot.styles[f"{NAME}, ideal"] and "Dashed: the ideal" in plot.description
    assert dashed["note"].str.startswith("ideal").all() and solid["note"].str.startswith("measured; TPS").all()


def test_its_tables_say_the_crossing_the_best_and_the_ideal(runs):
    (section,) = crossover_page(runs, Styles()).sections
    tables = {table.title: table for table in section.tables}
    rows = {row[0]: row for row in tables["Speed-up of TPOT by concurrency"].rows}
    assert 8 < float(rows[NAME][4]) < 64 and " to " in rows[NAME][5]
    assert rows["eagle:k=9"][1:4] == ("refused",) * 3
    ideal = {row[0]: row for row in tables["Ideal speed-up and efficiency, from the machine's limits"].rows}
    assert ideal[NAME][1:4] == ("3.00x, 50%", "1.06x, 50%", "0.38x, 50%") and 8 < float(ideal[NAME][4]) < 64


def test_many_lines_are_small_charts_each_named_above_with_one_scale(runs):
    (section,) = crossover_page(runs, Styles()).sections
    plot = section.charts[0]
    drawn = figure(plot)
    assert not drawn.legends and "facet" not in plot.data_columns
    titles = ["".join(axes.get_title().split()) for axes in drawn.axes]
    assert titles == ["".join(name.split()) for name in dict.fromkeys(plot.frame["facet"])] and len(titles) == 2
    assert len({axes.get_ylim() for axes in drawn.axes}) == 1
    assert [sum(line.get_alpha() == 0.6 for line in axes.lines) for axes in drawn.axes] == [1, 1], "the ideals"


def test_few_lines_share_one_chart(runs):
    (sweep,), _ = stored_sweeps(runs)
    few = replace(sweep.record, arms=sweep.record.arms[:2])
    assert "facet" not in crossover_frame(few, sweep.names)
    assert crossover_chart(few, sweep.names, Styles(), "few").legend


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema": "specbench.crossover/9"}', '{"schema": "specbench.crossover/1"}']
)
def test_a_sweep_that_cannot_be_read_is_named_and_its_runs_make_a_curve(tmp_path, text):
    sweep = stored_sweep(tmp_path)
    (sweep.path / "crossover.json").write_text(text)
    page = crossover_page(read_site_runs(find_runs([tmp_path])[0])[0], Styles())
    (section,) = page.sections
    assert "crossover.json: cannot be read" in page.warnings[0] and not section.title.startswith("Sweep")
    assert set(section.charts[0].frame["series"]) == {NAME, HOSTILE}


def with_text_machine(record):
    record["machine"] = {"device": 1}


def with_text_load(record):
    record["loads"][0] = record["arms"][1]["points"][0]["load"] = "one"


def with_text_low(record):
    record["arms"][1]["points"][0]["tpot"]["low"] = None
    record["arms"][1]["points"][0]["tpot"]["high"] = "high"


def without_status(record):
    del record["status"]


@pytest.mark.parametrize("damage", [with_text_machine, with_text_load, with_text_low, without_status])
def test_a_sweep_of_which_a_part_cannot_be_shown_is_named(tmp_path, damage):
    file = stored_sweep(tmp_path).path / "crossover.json"
    record = json.loads(file.read_text())
    damage(record)
    file.write_text(json.dumps(record))
    page = crossover_page(read_site_runs(find_runs([tmp_path])[0])[0], Styles())
    assert "crossover.json: cannot be read" in page.warnings[0] and not page.sections[0].title.startswith("Sweep")


def test_a_crossover_that_is_a_link_is_not_followed(tmp_path):
    file = stored_sweep(tmp_path / "runs").path / "crossover.json"
    file.rename(tmp_path / "away.json")
    file.symlink_to(tmp_path / "away.json")
    page = crossover_page(read_site_runs(find_runs([tmp_path / "runs"])[0])[0], Styles())
    assert "is a symbolic link" in page.warnings[0] and not page.sections[0].title.startswith("Sweep")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    found = [
        finished_run(folder, started=f"2026-02-0{n + 1}T00:00:00Z", concurrency=c) for n, c in enumerate((1, 8, 64))
    ]
    return read_site_runs(found)[0]


def test_the_newest_run_of_each_load_counts(plain, tmp_path):
    again = finished_run(tmp_path, started="2026-03-01T00:00:00Z", concurrency=8, round_ms=20.0)
    newer = read_site_runs([again])[0]
    (group,) = by_load([*newer, *plain])
    record = group_record(group)
    frame = crossover_frame(record, display_names(record))
    speedup = next(arm.speedup for arm in newer[0].arms if arm.label == EAGLE)
    at_eight = frame[(frame["series"] == EAGLE) & (frame["x"] == 8)].iloc[0]
    assert at_eight["y"] == pytest.approx(speedup.tpot_ratio) and at_eight["low"] < at_eight["y"] < at_eight["high"]
    assert len(frame) == 6 and "dashed" not in frame


def test_what_was_forced_is_another_arm_than_what_was_not(plain, tmp_path):
    forced = finished_run(tmp_path, started="2026-03-01T00:00:00Z", concurrency=8)
    raw = json.loads((forced / "run.json").read_text())
    for arm in (*raw["arms"], *raw["results"]["arms"]):
        if arm["label"] == EAGLE:
            arm["notes" if "notes" in arm else "marks"] = ["synthetic acceptance (3.0)"]
    raw["results_sha256"] = None
    (forced / "run.json").write_text(json.dumps(raw))
    (group,) = by_load([*read_site_runs([forced])[0], *plain])
    record = group_record(group)
    frame = crossover_frame(record, display_names(record))
    assert sorted(frame[frame["series"] == EAGLE]["x"]) == [1, 8, 64]
    assert sorted(frame[frame["series"] == NAME]["x"]) == [8]


def test_one_load_makes_no_curve(plain):
    (section,) = crossover_page(plain[:1], Styles()).sections
    assert section.title == "Measured at one load only" and section.charts == () and len(section.tables[0].rows) == 2


def test_hundreds_of_runs_are_not_all_read(plain, tmp_path, monkeypatch):
    many = [
        copied(run.path, tmp_path, 10 * n + i, started=f"2026-01-{n % 27 + 1:02d}T00:00:00Z", sha=f"{n:02x}" * 20)
        for n in range(60)
        for i, run in enumerate(plain)
    ]
    read = read_site_runs(many)[0]
    opened, frames = [], RunDirectory.frames
    monkeypatch.setattr(RunDirectory, "frames", lambda run: opened.append(run.path) or frames(run))
    crossover_page(read, Styles())
    assert len(read) == 180 and len(opened) == 3, "the newest at each load"


@pytest.fixture(scope="module")
def site(folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("site")
    build_site([folder], output)
    return output


@pytest.fixture
def page(open_file, site):
    page = open_file(site / "crossover.html", site)
    page.wait_for_selector("html[data-charts=drawn]")
    return page


def test_a_browser_plots_measured_and_ideal(page, runs):
    (sweep,), _ = stored_sweeps(runs)
    frame = crossover_frame(sweep.record, sweep.names)
    names = page.locator("svg [aria-label*='speed-up of TPOT: ']").evaluate_all(
        "all => all.map(e => e.getAttribute('aria-label'))"
    )
    marks = [dict(part.split(": ", 1) for part in re.split(r"; (?=[^;:]+: )", name)) for name in names]
    found = {(mark["series"], mark["concurrency (log scale)"]): float(mark["speed-up of TPOT"]) for mark in marks}
    assert found == pytest.approx({(r.series, str(r.x)): r.y for r in frame.itertuples()})
    first = page.locator("figure").first
    written = first.locator("svg text").evaluate_all("all => all.map(e => e.textContent)")
    assert NAME in written, "above its small chart"
    assert first.locator("ul.legend").count() == 0
    page.locator("figure details summary").first.click()
    assert "dashed" in page.locator("figure table").first.inner_text()


def test_it_is_accessible(page, serious_violations):
    assert serious_violations(page) == []
