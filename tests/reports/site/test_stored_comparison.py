"""Newest runs against those before: which two are compared, what is said where they cannot be, what the page shows."""

from __future__ import annotations

import json

import pytest
from site_samples import ARMS, EAGLE, HOSTILE, copied, dated, experiment_run, finished_run

from specbench.harness.judge.comparison import compare_runs
from specbench.harness.judge.stored import read_run
from specbench.harness.store.block_records import BlockRecord, add_record
from specbench.reports.experiments.compare_table import compare_table
from specbench.reports.site.compare_page import compare_page
from specbench.reports.site.predecessors import followers
from specbench.reports.site.runs import read_site_runs
from specbench.reports.site.stored_comparison import change_frame, stored_sections


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("first"), started="2026-02-01T00:00:00Z", sha="a" * 40)


def changed(path, **changes):
    """The run with other values at these places, as `environment.hardware.cpu.model`."""
    raw = json.loads((path / "run.json").read_text())
    for place, value in changes.items():
        *outer, last = place.split("__")
        inner = raw
        for key in outer:
            inner = inner[key]
        inner[last] = value
    (path / "run.json").write_text(json.dumps(raw))
    return path


def three(first, folder, **of_the_middle):
    """Runs of February 1st to 3rd, newest first."""
    made = [
        copied(first, folder, n, started=f"2026-02-0{n}T00:00:00Z", sha=f"{n:02x}" * 20, scale=1 + n / 10)
        for n in (1, 2, 3)
    ]
    changed(made[1], **of_the_middle)
    return read_site_runs(made)[0]


def test_a_run_follows_the_newest_comparable_one(first, tmp_path):
    runs = three(first, tmp_path)
    found = followers(runs)
    assert [found[run.page].comparable for run in runs] == [runs[1], runs[2], None]
    assert [found[run.page].before for run in runs] == [runs[1], runs[2], None]
    assert not any(f.refused for f in found.values())


def test_another_machine_between_is_named_and_passed_over(first, tmp_path):
    runs = three(first, tmp_path, environment__hardware__cpu__model="Another CPU")
    newest = followers(runs)[runs[0].page]
    assert (newest.before, newest.comparable) == (runs[1], runs[2])
    ((other, why),) = newest.refused
    assert other is runs[1] and why == ("hardware: CPU: Another CPU and Test CPU",)
    section = stored_sections(runs, followers(runs))[0]
    assert section.sentences == (
        f"{runs[1].run_id}, nearer in time, is not comparable: hardware: CPU: Another CPU and Test CPU.",
    )
    assert section.tables[0].title == f"{runs[0].run_id} against {runs[2].run_id}"


def test_marks_of_a_row_stand_in_its_name_and_below(first, tmp_path):
    runs = three(first, tmp_path)
    reasons = ("load 4.8 on 2 cores",)
    add_record(runs[0].path, BlockRecord(arm=EAGLE, block=0, position=0, load_average=(5, 4.8), reasons=reasons))
    changed(runs[0].path, results__rules=0)
    table = stored_sections(runs, followers(runs))[0].tables[0]
    assert {row[0] for row in table.rows} == {"no-spec", f"{EAGLE} (DISTURBED)", HOSTILE}
    assert any(f"{EAGLE}: DISTURBED: load 4.8 on 2 cores" in note for note in table.notes)


def test_without_a_comparable_one_the_reasons_are_a_table(first, tmp_path):
    runs = three(first, tmp_path)
    changed(runs[0].path, sampling__temperature=0.7)
    runs = read_site_runs([run.path for run in runs])[0]
    refused = stored_sections(runs[:2], followers(runs[:2]))[-1]
    assert refused.title == "Not comparable with the previous run"
    ((run, before, why),) = refused.tables[0].rows
    assert (run.href, before.href, why) == (runs[0].page, runs[1].page, "sampling: temperature: 0.0 and 0.7")


def test_other_loads_other_arms_and_experiments_are_no_predecessors(first, tmp_path):
    other_load = finished_run(tmp_path, started="2026-02-02T00:00:00Z", concurrency=8)
    other_arms = copied(first, tmp_path, 3, started="2026-02-03T00:00:00Z", sha="b" * 40)
    raw = json.loads((other_arms / "run.json").read_text())
    for arm in (*raw["arms"], *raw["results"]["arms"], *raw["results"]["blocks"]):
        key = "label" if "label" in arm else "arm"
        arm[key] = f"{arm[key]},x=1"
    raw["results_sha256"] = None
    (other_arms / "run.json").write_text(json.dumps(raw))
    runs = read_site_runs([first, other_load, other_arms, experiment_run(tmp_path)])[0]
    assert all(follows.before is None for follows in followers(runs).values())
    (none,) = stored_sections([run for run in runs if not run.is_experiment], followers(runs))
    assert "No run here has an earlier one" in none.sentences[0]


def test_the_table_is_that_of_the_command(first, tmp_path):
    runs = three(first, tmp_path)
    section = stored_sections(runs, followers(runs))[0]
    compared = compare_runs([read_run(runs[1].path), read_run(runs[0].path)])
    (table,) = section.tables
    assert table.rows == tuple(row[1:] for row in compare_table(compared).rows) and "verdict" in table.headers
    assert {row[0] for row in table.rows} == set(ARMS)
    assert section.commands[0].text == f"specbench compare {runs[1].path} {runs[0].path}"
    frame = change_frame(compared)
    drawn = {row.y: (row.x, row.verdict) for row in frame.itertuples()}
    eagle = next(row for row in compared.rows if row.arm == EAGLE and row.baseline).comparisons["step_ms"]
    assert drawn[f"{EAGLE}: step time"][0] == eagle.change and eagle.verdict in drawn[f"{EAGLE}: step time"][1]
    assert not any("TTFT" in name or "TPS" in name for name in drawn)


def test_a_damaged_table_costs_its_own_section_only(first, tmp_path):
    runs = three(first, tmp_path)
    (runs[1].path / "steps.parquet").write_bytes(b"PAR1")
    sections = compare_page(runs, followers(runs)).sections
    assert any("Could not be compared" in text for section in sections for text in section.sentences)
    assert any(section.title.startswith("Strategies") for section in sections)


def test_two_runs_of_one_day_have_an_order(first, tmp_path):
    path = copied(first, tmp_path, 9, started="2026-02-01T00:00:00Z", sha="c" * 40)
    runs = read_site_runs([dated(path, started="2026-02-01T00:00:00Z"), first])[0]
    found = followers(runs)
    assert [found[run.page].comparable for run in runs] == [runs[1], None]
