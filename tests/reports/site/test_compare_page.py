"""The page of comparisons: what stands first, and open."""

from __future__ import annotations

import pytest
from known_results import results
from run_samples import begun, chain_block
from site_samples import EAGLE, copied, dated, experiment_run

from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.site.compare_page import compare_page
from specbench.reports.site.predecessors import followers
from specbench.reports.site.runs import read_site_runs
from specbench.reports.site.stored_comparison import has_verdict


def sections_of(*paths):
    runs, problems = read_site_runs(paths)
    assert problems == []
    return compare_page(runs, followers(runs)).sections, runs


def many_prompts(folder):
    """As many as tokens per step need for a verdict."""
    run = RunDirectory.create(folder, "many", begun("no-spec", EAGLE))
    run.append("no-spec", 0, **chain_block([0] * 8, num_requests=12, k=0))
    run.append(EAGLE, 0, **chain_block([4, 0, 2, 1, 3, 0], num_requests=12))
    run.finish(results(run.frames()))
    return run.path


@pytest.mark.parametrize(("change", "word"), [(-0.03, "▲ improved"), (0.03, "▼ regressed"), (0.0, "~ equivalent")])
def test_the_newest_experiment_with_a_verdict_is_first_and_open(tmp_path, change, word):
    decided = dated(experiment_run(tmp_path / "old", change=change), started="2026-02-01T00:00:00Z")
    aa = dated(experiment_run(tmp_path / "aa", is_aa=True), started="2026-03-04T00:00:00Z")
    unclear = dated(experiment_run(tmp_path / "unclear", noise=0.2), started="2026-03-03T00:00:00Z")
    sections, runs = sections_of(decided, aa, unclear)
    assert [section.badge.text.split()[0] for section in sections] == [word.split()[0], "A/A:", "?"]
    assert sections[0].badge.text == word and sections[0].links == (runs[-1].link,)
    assert [section.folded for section in sections] == [False, True, True]
    names = [chart.name for section in sections for chart in section.charts]
    assert len(set(names)) == len(names)


def test_without_such_an_experiment_a_stored_comparison_with_a_verdict_is(tmp_path):
    aa = experiment_run(tmp_path / "aa", is_aa=True)
    first = dated(many_prompts(tmp_path), started="2026-02-01T00:00:00Z", sha="a" * 40)
    second = copied(first, tmp_path, 2, started="2026-02-02T00:00:00Z", sha="b" * 40)
    sections, _ = sections_of(aa, first, second)
    assert has_verdict(sections[0]) and not sections[0].folded and all(section.folded for section in sections[1:])
    assert sections[1].badge.text.startswith("A/A")


def test_where_nothing_has_a_verdict_the_newest_is_first(tmp_path):
    aa = experiment_run(tmp_path / "aa", is_aa=True)
    unclear = dated(experiment_run(tmp_path / "unclear", noise=0.2), started="2026-02-01T00:00:00Z")
    sections, _ = sections_of(aa, unclear)
    assert [section.badge.text.split()[0] for section in sections] == ["A/A:", "?"] and not sections[0].folded
