"""`specbench power`: the floor is measured, stored for this hardware, shown again, and used by `ab`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.experiments import ab_sides
from specbench.harness.run.runner import Arms
from specbench.harness.store.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def small(toy) -> list[str]:
    words = iter(toy[1:])
    return [word for name in words for word in (name, next(words)) if name != "--num-repeats"]


def test_measured_stored_shown_and_used(cli, small, runs, clock, tmp_path):
    result = cli("power", "--aa", 6, "--in-process", "-s", "ngram:k=2", *small)
    assert result.exit_code == 0, result.output
    assert "Noise of A/A: ngram:k=2 on toy (cpu)" in result.stdout and "MDE, 10 blocks" in result.stdout
    (run,) = runs.iterdir()
    floor = json.loads((run / "noise.json").read_text())
    assert floor["num_blocks"] == 6 and floor["in_process"] and [m["num_pairs"] for m in floor["metrics"]][0] == 6
    assert json.loads((run / "ab.json").read_text())["is_aa"]
    (path,) = (tmp_path / "cache" / "noise").glob("*.json")
    assert json.loads(path.read_text())["floors"] == [floor] and str(path) in result.stderr
    assert json.loads(cli("power", "--format", "json").stdout) == floor
    used = cli("ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", 6, "--in-process", *small)
    assert "6 blocks could detect changes of step time" in used.stderr and "(ngram:k=2 on toy," in used.stderr


def test_the_one_arm_is_planned_once_and_both_sides_run_it(cli, small, runs, monkeypatch):
    planned = []

    def plan(options, check, whole=ab_sides.plan_run):
        planned.append(options.strategy)
        return whole(options, check)

    monkeypatch.setattr(ab_sides, "plan_run", plan)
    assert cli("power", "--aa", 2, "--in-process", "-s", "ngram:k=2", *small).exit_code == 0
    assert planned == [("ngram:k=2",)]
    (run,) = runs.iterdir()
    a, b = RunDirectory.open(run).record.config.arms
    assert (a.label, b.label) == ("A", "B") and a == replace(b, label="A")


def test_nothing_stored(cli):
    result = cli("power")
    assert (
        result.exit_code == 2 and "no noise floor is stored for this hardware; measure it with --aa 10" in result.stderr
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--aa", "1", "-s", "ngram"], "aa: 1 is not allowed"),
        (["-s", "ngram"], "-s ngram selects what to measure; set the number of blocks with --aa"),
        (["--in-process"], "aa: --in-process selects what to measure; set the number of blocks with --aa"),
        (["--aa", "6"], "error: strategy: no-spec, ngram are not allowed; allowed: one arm; name it with -s\n"),
        (
            ["--aa", "6", "-s", "ngram", "--num-repeats", "2"],
            "error: --num-repeats: every block is one repeat; set the number of blocks with --aa\n",
        ),
        (["--aa", "6", "-s", "ngram", "--batch-sizes", "1,2"], "error: --batch-sizes: every block has the same load"),
        (["--aa", "6", "-s", "nospec"], "error: strategy: 'nospec' is not known"),
        (["--aa", "6", "-s", "ngram:graph=one"], "error: graph is refused"),
        (["--aa", "6", "-s", "ngram", "--colour", "red"], "error: No such option: --colour"),
    ],
)
def test_refused(cli, small, runs, words, message):
    options = small if "--aa" in words else []
    result = cli("power", *words, *options)
    assert result.exit_code == 2 and message in result.stderr and not runs.exists()


@pytest.mark.parametrize("is_told", [True, False], ids=["finished", "stopped before both sides were known"])
def test_an_experiment_of_two_sides_is_refused_before_it_is_measured(cli, small, runs, monkeypatch, is_told):
    cli("ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", 2, "--no-verdict", "--in-process", *small)
    (run,) = runs.iterdir()
    raw = json.loads((run / "run.json").read_text())
    raw["ab"]["plan"]["num_blocks"] = 4  # two are missing
    if not is_told:
        del raw["ab"]["is_aa"]
    (run / "run.json").write_text(json.dumps(raw))
    monkeypatch.setattr("specbench.harness.experiments.power.resume_experiment", None)  # must not be reached
    result = cli("power", "--resume", run)
    assert result.exit_code == 2 and "compares two different sides" in result.stderr
    assert not (run / "noise.json").exists()


def test_an_interrupted_floor_goes_on(cli, small, runs):
    cli("power", "--aa", 2, "--in-process", "-s", "ngram:k=2", *small)
    (run,) = runs.iterdir()
    raw = json.loads((run / "run.json").read_text())
    raw["ab"]["plan"]["num_blocks"] = 3
    del raw["ab"]["is_aa"]
    (run / "run.json").write_text(json.dumps(raw))
    assert cli("power", "--resume", run).exit_code == 0
    assert json.loads((run / "noise.json").read_text())["num_blocks"] == 3


def test_an_interrupted_floor_names_its_own_command(cli, small, runs, monkeypatch):
    measure, ran = Arms.try_block, []

    def block(arms, arm, repeat):
        ran.append(arm.config.label)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return measure(arms, arm, repeat)

    monkeypatch.setattr(Arms, "try_block", block)
    result = cli("power", "--aa", 2, "--in-process", "-s", "ngram:k=2", *small)
    (run,) = runs.iterdir()
    assert result.exit_code == 130 and result.stderr.splitlines()[-1].endswith(f"specbench power --resume {run}")
    assert "specbench ab" not in result.stderr
    shown = cli("show", run)
    assert shown.exit_code == 0 and "1 of 2 blocks count" in shown.stdout
    assert cli("power", "--resume", run).exit_code == 0 and (run / "noise.json").exists()


def test_a_single_block_that_counts_is_an_invalid_measurement(cli, small, runs, monkeypatch):
    ran = []

    def measure(self, load, sink, whole=NativeDeployment.measure):
        ran.append(self)
        if len(ran) > 2:
            raise RuntimeError("broken")
        whole(self, load, sink)

    monkeypatch.setattr(NativeDeployment, "measure", measure)
    result = cli("power", "--aa", 2, "--in-process", "-s", "ngram:k=2", *small)
    assert result.exit_code == 4, result.output
    assert "error: aa: 1 blocks are valid, too few to estimate a spread" in result.stderr.splitlines()[-1]
    (run,) = runs.iterdir()
    assert (run / "ab.json").exists() and not (run / "noise.json").exists()


def test_a_run_of_arms_is_no_floor(cli, toy, runs):
    cli(*toy, "-s", "no-spec")
    (run,) = runs.iterdir()
    result = cli("power", "--resume", run)
    assert result.exit_code == 2 and "is not an A/A run; resume with: specbench run --resume" in result.stderr
