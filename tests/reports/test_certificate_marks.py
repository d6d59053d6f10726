"""A failed certificate stands beside every figure of its arm, whatever table shows it; a passed one changes nothing."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from reports.test_asked_tables import ROWS, recipe, row, run_of
from rich.console import Console
from run_samples import SAMPLING

from specbench.harness.judge.certificate_marks import FILE
from specbench.harness.judge.comparison import compare_runs
from specbench.harness.judge.stored import read_run
from specbench.reports.experiments.compare_table import compare_table
from specbench.reports.run.ablation_table import ablation_table
from specbench.reports.run.comparison import comparison_table
from specbench.reports.run.document import markdown_report
from specbench.reports.run.json_report import json_report
from specbench.reports.run.recipe_table import recipe_table
from specbench.reports.run.view import view_run
from specbench.reports.terminal import plain_result, rich_result

MARK = "NOT LOSSLESS"
ROUND_MS = {"slow": 10.0, "fast": 8.0}
RECIPE = recipe([row("slow", baseline=True), row("fast")])


@pytest.fixture(params=[False, True], ids=["passed", "failed"])
def is_failed(request) -> bool:
    return request.param


@pytest.fixture
def view_of(tmp_path, is_failed):
    """A run whose arm `fast` was certified."""

    def make(name: str, **record):
        run = run_of(tmp_path / name, ROUND_MS, **record)
        problems = ["regret: a token lies 3 below the best"] if is_failed else []
        rows = [{"arm": "slow", "ok": True, "problems": []}, {"arm": "fast", "ok": not problems, "problems": problems}]
        (run.path / FILE).write_text(json.dumps({"status": "complete", "certificates": rows}))
        return view_run(run)

    return make


def _marked(lines: list[str]) -> list[str]:
    return [line for line in lines if MARK in line]


def _printed(renderable) -> list[str]:
    console = Console(file=io.StringIO(), width=400)
    console.print(renderable)
    return console.file.getvalue().splitlines()


def test_the_main_table_in_every_form(view_of, is_failed):
    view = view_of("main")
    table = comparison_table(view)
    forms = (plain_result(table).splitlines(), _printed(rich_result(table, 400)))
    for lines in forms:
        marked = _marked(lines)
        assert len(marked) == is_failed and all(line.strip().startswith("fast") for line in marked)
        assert not is_failed or "a token lies 3 below" in marked[0]
    narrow = _printed(rich_result(table, 60))
    assert bool(_marked(narrow)) is is_failed, "columns in groups keep the mark below"
    assert (MARK in json.dumps(json_report(view))) is is_failed


def test_every_table_of_the_markdown_report_that_names_arms(view_of, is_failed):
    rows = [line for line in markdown_report(view_of("md")).splitlines() if line.startswith("| fast")]
    assert len(rows) >= 3 and all((MARK in row) is is_failed for row in rows)


def test_a_recipes_table(view_of, is_failed):
    names = [cells[0] for cells in recipe_table(view_of("seed", recipe=RECIPE)).rows]
    assert names == ["slow", f"fast ({MARK})" if is_failed else "fast"]


def test_one_factor_at_a_time_alone_and_joined(view_of, is_failed):
    views = [view_of(f"b{b}", ablation=ROWS, sampling=replace(SAMPLING, max_concurrency=b)) for b in (1, 8)]
    alone = [row[-1] for row in ablation_table(views[:1]).rows if MARK in row[-1]]
    assert len(alone) == is_failed
    marked = _marked(plain_result(ablation_table(views)).splitlines())
    assert len(marked) == 2 * is_failed and all(line.startswith("sync") for line in marked)


def test_stored_runs_side_by_side(tmp_path, view_of, is_failed):
    run = view_of("stored").record.run_id
    (path,) = (file.parent for file in tmp_path.rglob("run.json"))
    rows = compare_table(compare_runs([read_run(path)])).rows
    assert {row[0] for row in rows} == {run} and {row[1] for row in rows} == {f"fast ({MARK})" if is_failed else "fast"}
