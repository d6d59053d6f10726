"""`specbench history` over made-up commits: what is added is said, and a suspect's command is one that `ab` reads."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pytest
import typer
from ab_samples import experiment
from compare_samples import Machine, make_run

from specbench.harness.cli.main import app
from specbench.harness.run import track as track_module
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.lock_file import LOCK_FILE
from specbench.harness.store.run_directory import RunDirectory

ARGV = shlex.split("specbench run -s no-spec -s eagle:k=4 --dataset-name gsm8k --num-prompts 3 --label nightly")
ARMS = (parse_arm("no-spec"), parse_arm("eagle:k=4"))
CONFIG = RunConfig(arms=ARMS, dataset_name="gsm8k", num_prompts=3)


def run_of(folder, n: int, **more):
    machine = Machine(noise_seed=n, sha=f"{n:07x}" + "a" * 33, num_prompts=3, num_rounds=6, num_repeats=1, **more)
    path = make_run(folder, machine)
    change(path, argv=ARGV, started_utc=f"2026-01-01T00:{n:02}:00Z")
    directory = RunDirectory.open(path)
    directory.put(replace(directory.record, config=CONFIG))
    return path


def change(run, **values) -> None:
    raw = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**raw, **values}))


@pytest.fixture
def history(cli, tmp_path):
    """Ten commits of one speed, and one that is slower."""
    runs = [run_of(tmp_path / "made", n, step_factor=1.2 if n == 10 else 1.0) for n in range(11)]
    result = cli("history", "add", tmp_path / "h", *runs)
    assert result.exit_code == 0 and result.stdout.count("added: ") == 11
    return tmp_path / "h"


def test_what_was_done_with_each_run_is_said(cli, tmp_path):
    run, made = run_of(tmp_path / "made", 1), experiment(tmp_path / "made", num_blocks=2)
    change(run, status="interrupted")
    first = cli("history", "add", tmp_path / "h", run, made.path)
    assert f"{run.name} is interrupted: add it again when it has ended" in first.stderr
    assert f"{made.path.name} is an A/B run: kept, but not a point of the history" in first.stderr
    change(run, status="running")
    (run / LOCK_FILE).touch()  # nobody holds it: the process was killed
    killed = cli("history", "add", tmp_path / "h", run)
    assert f"{run.name} is interrupted: add it again when it has ended" in killed.stderr
    change(run, status="complete")
    again = cli("history", "add", tmp_path / "h", run, made.path)
    assert again.stdout.startswith("replaced, it has continued since: ") and "already there: " in again.stdout
    assert "is interrupted" not in again.stderr


@pytest.mark.parametrize("command", ["show", "suspects"])
def test_long_work_says_how_far_it_is(cli, history, monkeypatch, command):
    assert cli("history", command, history).stderr == "", "over at once"
    monkeypatch.setattr(track_module, "EVERY_S", 0.0)
    said = cli("history", command, history).stderr
    for what in ("run", "series"):
        assert re.search(rf"^specbench: {what} 2 of \d+, about \d+ s left$", said, re.M), said


def test_the_command_that_decides_is_complete(cli, history):
    found = json.loads(
        cli("history", "suspects", history, "--metric", "step_ms", "--arm", "eagle:k=4", "--format", "json").stdout
    )
    (entry,) = found["series"]
    words = shlex.split(entry["suspect"]["decide_by"])
    assert words[:2] == ["specbench", "ab"]
    context = typer.main.get_command(app).commands["ab"].make_context("ab", words[2:])
    before, after = f"{9:07x}aaaaa", f"{10:07x}aaaaa"
    assert (context.params["a"], context.params["b"]) == (f"ref:{before} eagle:k=4", f"ref:{after} eagle:k=4")
    assert context.args == ["--dataset-name", "gsm8k", "--num-prompts", "3"]
    assert "Commands without options" not in cli("history", "suspects", history).stdout


def test_a_step_that_is_accepted_is_no_suspect(cli, history):
    assert cli("history", "accept", history, f"{10:07x}", "--note", "larger head").exit_code == 0
    assert "No suspects." in cli("history", "suspects", history).stdout
    shown = cli("history", "show", history, "--metric", "step_ms", "--arm", "eagle:k=4", "--last", 1).stdout
    assert "regressed" in shown and "accepted" in shown


def test_all_series_are_one_table_and_only_those_with_an_event_follow(cli, history):
    assert " of " not in cli("history", "show", history).stdout, "a suspect is no event"
    cli("history", "accept", history, f"{10:07x}", "--metric", "step_ms", "--arm", "eagle:k=4")
    title, headers, _, *rows = [line for line in cli("history", "show", history).stdout.splitlines() if line]
    assert title == "toy-model, toy"
    assert headers.split()[:4] == ["arm", "metric", "newest", "segment"]
    last = next(n for n, line in enumerate(rows) if line.startswith("step_ms of eagle:k=4 ("))
    assert {tuple(line.split()[:2]) for line in rows[:last]} > {("no-spec", "tpot_ms"), ("eagle:k=4", "step_ms")}
    assert sum("regressed" in line for line in rows[:last]) == 1 and sum(" of " in line for line in rows) == 1
