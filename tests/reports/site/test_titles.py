"""Titles of sections: those of runs that differ in an option say in which; sections without content have none."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from site_samples import copied, experiment_run, finished_run

from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.files import to_plain
from specbench.reports.charts.chart import Axis, Chart
from specbench.reports.document import Cell, Command, Document, Fact, Section, Table, filled
from specbench.reports.html import html_page
from specbench.reports.site.anatomy_page import anatomy_page
from specbench.reports.site.compare_page import compare_page
from specbench.reports.site.page import Page
from specbench.reports.site.predecessors import followers
from specbench.reports.site.render import render
from specbench.reports.site.runs import read_site_runs


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("one"), started="2026-02-01T00:00:00Z", sha="a" * 40)


def asked(path, folder, number, **changes):
    """A copy of the run with these places of its record changed; `config__x` of its configuration."""
    made = copied(path, folder, number, started=f"2026-02-0{number}T00:00:00Z", sha="b" * 40)
    raw = json.loads((made / "run.json").read_text())
    for place, value in changes.items():
        group, _, name = place.partition("__")
        raw[group] = {**(raw[group] or {}), name: value}
    (made / "run.json").write_text(json.dumps(raw))
    return made


def titles(page):
    return [section.title for section in page.sections]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sampling__seed": 7}, "seed 7"),
        ({"sampling__ignore_eos": True}, "ignore_eos True"),
        ({"workload__sha256": "cd" * 32}, "prompts sha256 cdcdcdcdcdcd"),
    ],
)
def test_runs_that_differ_in_an_option_have_titles_that_say_so(path, tmp_path, changes, words):
    runs, _ = read_site_runs([path, asked(path, tmp_path, 2, **changes)])
    found = titles(anatomy_page(runs))
    assert len(set(found)) == len(found) == 2 and found[0].endswith(f", {words}")
    found = titles(compare_page(runs, followers(runs)))
    assert len(set(found)) == len(found)


def test_lengths_are_named_rather_than_the_hash_of_the_prompts(path, tmp_path):
    raw = json.loads((path / "run.json").read_text())
    arms = tuple(ArmConfig(label=arm["label"], strategy=arm["strategy"]) for arm in raw["arms"])
    config = to_plain(RunConfig(arms=arms))
    made = []
    for number, length in ((2, 128), (3, 4096)):
        own = asked(path, tmp_path, number, workload__sha256=f"{number}" * 64)
        whole = json.loads((own / "run.json").read_text())
        whole["config"] = {**config, "random_input_len": length, "request_rate": 4.0}
        (own / "run.json").write_text(json.dumps(whole))
        made.append(own)
    runs, problems = read_site_runs(made)
    assert problems == []
    found = titles(anatomy_page(runs))
    assert [title.rpartition(", ")[2] for title in found] == ["random input len 4096", "random input len 128"]
    matrices = [title for title in titles(compare_page(runs, followers(runs))) if title.startswith("Strategies")]
    assert [title.rpartition(", ")[2] for title in matrices] == ["random input len 4096", "random input len 128"]


def test_experiments_of_one_day_have_titles_of_their_own(tmp_path):
    paths = [experiment_run(tmp_path / name, change=-0.03) for name in ("one", "two")]
    raw = json.loads((paths[0] / "run.json").read_text())
    raw["sampling"]["max_concurrency"] = 8
    (paths[0] / "run.json").write_text(json.dumps(raw))
    runs, _ = read_site_runs(paths)
    found = titles(compare_page(runs, followers(runs)))
    assert sorted(title.rpartition(", ")[2] for title in found) == ["max concurrency 8", "max concurrency unknown"]


EMPTY = Table(title="t", headers=("a",), rows=())


def chart(*rows):
    frame = pd.DataFrame(list(rows), columns=["pair", "x", "y"])
    axes = {"x": Axis(title="x"), "y": Axis(title="y")}
    return Chart(name="c", title="drawn", description="", frame=frame, marks="lines", **axes)


@pytest.mark.parametrize(
    ("content", "is_kept"),
    [
        ({"tables": (EMPTY,), "charts": (chart(),)}, False),
        ({"tables": (EMPTY,), "links": (Cell(text="a run", href="x.html"),)}, False),
        ({}, False),
        ({"links": (Cell(text="older", href="x.html"),)}, True),
        ({"tables": (EMPTY,), "sentences": ("why",)}, True),
        ({"tables": (EMPTY,), "charts": (chart(("p", 1, 2)),)}, True),
        ({"facts": (Fact(name="runs", value="1"),)}, True),
        ({"commands": (Command(name="again", text="specbench run"),)}, True),
    ],
)
def test_a_section_without_content_has_no_heading(content, is_kept):
    sections = (Section(title="Heading", **content), Section(title="Other", sentences=("said",)))
    assert [section.title for section in filled(sections)] == ["Heading"] * is_kept + ["Other"]
    site = render(Page(path="x.html", title="Page", sections=sections), [], "site")
    own = html_page(Document(title="Page", sections=sections, parts=(Document(title="Part", sections=sections),)))
    assert (">Heading" in site) is (own.count(">Heading</h") == 2) is is_kept and ">Other" in site and ">Other" in own
    assert "<caption><span>t</span>" not in site + own
