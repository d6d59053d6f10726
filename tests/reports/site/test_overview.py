"""The first page: the sentence and the chart of the newest result, what changed lately, the table of runs."""

from __future__ import annotations

import json

import pytest
from site_samples import EAGLE, copied, experiment_run, finished_run

from specbench.reports.charts.chart import Styles
from specbench.reports.charts.data_table import data_table
from specbench.reports.charts.vega import specification
from specbench.reports.run.answer import answer
from specbench.reports.site.groups import by_load
from specbench.reports.site.headline import headlines
from specbench.reports.site.history_series import points, series_histories
from specbench.reports.site.overview_page import overview_page
from specbench.reports.site.runs import read_site_runs
from specbench.reports.site.runs_table import best_speedup, runs_table
from specbench.reports.site.speedup_chart import speedup_chart
from specbench.reports.site.triage import triage_section


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("one"), started="2026-02-01T00:00:00Z", sha="a" * 40)


def page_of(*paths):
    runs, problems = read_site_runs(paths)
    assert problems == []
    return overview_page(runs, [], series_histories(points(runs), [], 4)[0], Styles()), runs


def test_the_first_sentence_is_the_answer_and_the_chart_has_its_interval(path):
    page, (run,) = page_of(path)
    newest = page.sections[0]
    assert newest.sentences[0] == answer(run.figures) and newest.commands[0].text == run.record.command
    eagle = next(arm for arm in run.arms if arm.label == EAGLE)
    row = newest.charts[0].frame.iloc[0]
    assert (row["y"], row["x"], row["low"]) == (EAGLE, eagle.speedup.tpot_ratio, eagle.speedup.tpot_ratio_low)
    assert best_speedup(run)[2] == row["speed-up [95% CI]"] == data_table(newest.charts[0]).rows[0][-1]


def test_an_experiment_is_the_newest_result_and_strategies_come_next(path, tmp_path):
    page, _ = page_of(experiment_run(tmp_path, change=-0.03), path)
    newest, strategies = page.sections[:2]
    assert newest.badge.text == "▲ improved" and newest.sentences[0].startswith("B eagle:k=4 against A eagle:k=2: TPOT")
    assert "120 of 120 outputs equal" in newest.sentences[0]
    assert strategies.title == "Newest comparison of strategies" and EAGLE in strategies.sentences[0]


def marked(path, *marks, status="complete"):
    """The run with these marks at its second arm, and with this status."""
    raw = json.loads((path / "run.json").read_text())
    raw["results"]["arms"][1]["marks"] += marks
    raw.update(status=status, results_sha256=None)
    (path / "run.json").write_text(json.dumps(raw))
    return path


@pytest.mark.parametrize(
    ("marks", "status", "leads"),
    [
        (["IMPOSSIBLE: TPS 9.00x with 2.00 tokens per forward"], "complete", False),
        (["DISTURBED: load 4.8 on 2 cores (1 of 2 blocks)"], "complete", False),
        (["warm-up not stable after 5 s"], "complete", False),
        (["NOT LOSSLESS: a token 3.2 logits below the best"], "complete", False),
        ([], "failed", False),
        (["synthetic acceptance (rates=0.7)"], "complete", True),
    ],
)
def test_a_run_in_doubt_is_no_headline_and_a_fact_is_no_doubt(path, tmp_path, marks, status, leads):
    newer = copied(path, tmp_path, 1, started="2026-02-02T00:00:00Z", sha="b" * 40)
    page, runs = page_of(marked(newer, *marks, status=status), path)
    (link,) = page.sections[0].links
    assert link.href == runs[0 if leads else 1].page and (runs[0] in headlines(runs)) is leads


def test_where_all_results_are_in_doubt_the_newest_leads_and_says_so(path, tmp_path):
    older = copied(path, tmp_path, 1, started="2026-02-02T00:00:00Z", sha="b" * 40)
    newer = copied(path, tmp_path, 2, started="2026-02-03T00:00:00Z", sha="c" * 40)
    mark = "warm-up not stable after 5 s"
    page, runs = page_of(marked(newer, mark), marked(older, mark))
    first = page.sections[0]
    assert first.links[0].href == runs[0].page and first.charts
    (said,) = (sentence for sentence in first.sentences if sentence.startswith("In doubt: "))
    assert f"{runs[0].arms[1].label}: {mark}" in said


def test_equal_sides_and_experiments_without_a_verdict_are_no_headline(path, tmp_path):
    aa = experiment_run(tmp_path / "aa", is_aa=True)
    invalid = experiment_run(tmp_path / "no", reasons={("A", n): ["load"] for n in range(9)})
    page, runs = page_of(aa, invalid, path)
    assert [link.text for link in page.sections[0].links] == [runs[-1].run_id] and "[" in page.sections[0].sentences[0]
    page, runs = page_of(aa, invalid)
    (none, *_) = page.sections
    assert none.sentences == ("No run here has a result to put first.",) and not none.charts
    why = {str(run): reason for run, reason in none.tables[0].rows}
    assert sorted(why.values()) == ["A/A: both sides are the same, so it measures noise", "invalid"]


def test_several_loads_make_lines_with_one_answer_each(path, tmp_path):
    other = finished_run(tmp_path, started="2026-02-02T00:00:00Z", concurrency=8)
    page, runs = page_of(path, other)
    assert [s.partition(":")[0] for s in page.sections[0].sentences[:2]] == ["concurrency 1", "concurrency 8"]
    chart = speedup_chart(by_load(runs)[0], Styles())
    assert chart.marks == "lines" and sorted(set(chart.frame["x"])) == [1, 8]


def test_the_words_above_values_are_a_column_and_no_path(path):
    """Vega takes `a[b]` for the entry b of a, which no row has."""
    chart = speedup_chart(by_load(page_of(path)[1])[0], Styles())
    drawn = json.dumps(specification(chart))
    assert chart.words == "speed-up [95% CI]" in chart.frame
    assert json.dumps({"field": r"speed-up \[95% CI\]", "type": "nominal"}) in drawn


def test_columns_that_say_nothing_are_left_out_and_machines_are_short(path, tmp_path):
    _, runs = page_of(path, finished_run(tmp_path, started="2026-02-02T00:00:00Z", concurrency=8))
    table = runs_table(runs)
    assert table.headers == ("run", "best speed-up, or change", "workload", "commit")
    assert [row["strategy"] for row in table.choices] == [("no-spec", "eagle", "ngram")] * 2
    assert all(set(row) == {"model", "hardware", "workload", "engine", "strategy"} for row in table.choices)


def test_steps_of_one_commit_are_one_row_with_the_largest_changes(path, tmp_path):
    made = [
        copied(path, tmp_path, n, started=f"2026-02-{n + 1:02d}T00:00:00Z", sha=f"{n:02x}" * 20, scale=1 + (n > 9) / 10)
        for n in range(20)
    ]
    runs, _ = read_site_runs(made)
    (section,) = triage_section(series_histories(points(runs), [], 4)[0], {run.run_id: run.page for run in runs})
    (row,) = section.tables[0].rows
    assert str(row[0]) == "0a" * 6 and row[0].href == runs[9].page and str(row[1]) == "▼ regressed"
    assert "+10.0%" in row[2] and "more" in row[2] and section.sentences[0].endswith("1 regressed.")


def test_without_a_history_nothing_is_said_of_changes(path):
    assert triage_section([], {}) == []
    assert [section.title for section in page_of(path)[0].sections] == ["Newest result", "All runs"]
