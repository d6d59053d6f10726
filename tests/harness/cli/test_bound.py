"""`specbench bound` on a real run of the toy model: table, JSON, files, and both renderers of its chart."""

from __future__ import annotations

import errno
import json
import re
import shutil
from pathlib import Path

import pytest

from specbench.harness.judge.bound import bound_of
from specbench.harness.run import track as track_module
from specbench.reports.charts.pictures import figure
from specbench.reports.charts.vega import specification
from specbench.reports.experiments.bound_table import bound_chart


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run of three arms, measured by the first test that needs it: 2 s."""
    return tmp_path_factory.mktemp("measured") / "runs"


@pytest.fixture
def run(cli, toy, runs, only_run, measured):
    """A copy, which a test may change."""
    arms = ("no-spec", "ngram:k=1,min_n=1", "ngram:k=3,min_n=1")
    words = ["-s", arms[0], "-s", arms[1], "-s", arms[2], "--random-output-len", 30]
    if not measured.exists():
        assert cli(*toy, *words, "--output-dir", measured).exit_code == 0
    shutil.copytree(measured, runs)
    return only_run()


@pytest.mark.usefixtures("pictures")
def test_table_json_and_files(cli, run):
    shown = cli("bound", run.path, "--write")
    assert shown.exit_code == 0, shown.output
    answer, *lines = shown.stdout.splitlines()
    assert "is the fastest arm" in answer and "perfect drafts would give" in answer
    assert any(line.split("  ")[0] == "ngram, best K for each round" and " 0 to 3 " in line for line in lines)
    (found,) = json.loads(cli("bound", run.path, "--format", "json").stdout)
    assert found == json.loads((run.path / "bound.json").read_text())
    rows = {row["name"]: row for row in found["rows"]}
    fixed, by_round = rows["ngram, best K for all rounds"], rows["ngram, best K for each round"]
    measured = [rows[label]["tpot_ms"] for label in ("no-spec", "ngram:k=1,min_n=1", "ngram:k=3,min_n=1")]
    assert by_round["low_ms"] <= fixed["low_ms"] <= min(measured) * 1.001
    assert found["num_tokens"] == 3 * 29 and found["drafters"][0]["measured"] == [0, 1, 3]
    text = (run.path / "bound.md").read_text()
    assert "plots/bound.png" in text and (run.path / "plots" / "bound.png").stat().st_size > 10_000
    assert text.startswith(cli("bound", run.path, "--format", "md").stdout.rstrip())


@pytest.mark.parametrize("taken", ["bound.json", "bound.md"])
def test_files_that_cannot_be_written_are_named_after_the_table(cli, run, taken):
    (run.path / taken).mkdir()
    shown = cli("bound", run.path, "--write")
    assert shown.exit_code == 2 and "is the fastest arm" in shown.stdout
    error = f"specbench: error: write: cannot write to {run.path}: Is a directory ({run.path / taken})"
    assert shown.stderr.splitlines()[-1] == error and "wrote" not in shown.stderr


@pytest.mark.parametrize("where", ["the run", "its plots"])
def test_a_folder_that_cannot_be_written_is_named(cli, run, monkeypatch, where):
    plots = run.path / "plots"
    shutil.rmtree(plots)
    if where == "the run":
        monkeypatch.setattr(Path, "mkdir", refuse_to_write)
    else:
        plots.write_text("")
    shown = cli("bound", run.path, "--write")
    reason = f"{plots} is not a directory" if where == "its plots" else f"Permission denied ({plots})"
    assert shown.exit_code == 2 and f"error: write: cannot write to {run.path}: {reason}\n" in shown.stderr


def refuse_to_write(path: Path, *_, **__) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_both_renderers_draw_every_row(run):
    bound = bound_of(run)
    chart = bound_chart(bound)
    assert chart.names == [row.name + " (synthetic)" * bool(row.marks) for row in bound.rows]
    (axes,) = figure(chart).axes
    assert len(axes.get_yticks()) == len(bound.rows)
    drawn = json.dumps(specification(chart))
    assert all(json.dumps(name) in drawn for name in chart.names)


def test_of_a_sweep_it_says_how_far_it_is(cli, toy_sweep, monkeypatch, runs):
    words = ["-s", "ngram:k=1,min_n=1", "--max-concurrency", "1,2", "--random-output-len", "30"]
    assert cli(*toy_sweep, *words).exit_code == 0
    (path,) = runs.iterdir()
    assert cli("bound", path).stderr == ""
    monkeypatch.setattr(track_module, "EVERY_S", 0.0)
    assert re.fullmatch(r"specbench: run 2 of 2, about \d+ s left\n", cli("bound", path).stderr)


def test_a_run_that_does_not_tell(cli, toy, only_run, tmp_path):
    assert cli(*toy, "-s", "no-spec").exit_code == 0
    refused = cli("bound", only_run().path)
    assert refused.exit_code == 2 and "has no arm with usable rounds: no other arm" in refused.stderr
    assert "run directory" in cli("bound", tmp_path / "none").stderr
