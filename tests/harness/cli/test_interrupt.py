"""Ctrl-C and kill, in real processes: finished blocks stay; a resumed run ends as one that was never interrupted."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from toy.interrupts import interrupted

from specbench.harness.run.interrupts import deferred_interrupt
from specbench.harness.run.run_lock import run_lock
from specbench.harness.store.run_directory import RunDirectory

TWICE = "--num-repeats 2 -s no-spec -s ngram:k=2".split()  # the signal comes in a step: blocks need not be long
BLOCKS = {(arm, repeat) for arm in ("no-spec", "ngram:k=2") for repeat in (0, 1)}


def signalled(words: list[str], number: signal.Signals, block: int) -> tuple[int, str, str]:
    """Runs the command, which gets the signal in its `block`-th block; exit code, stdout, stderr."""
    return interrupted(words, r": repeat \d+ of \d+, ", number, nth=block)


def outputs(run: RunDirectory) -> dict[tuple[str, int, str], list[int]]:
    rows = run.frames().requests
    keys = zip(rows["arm"], rows["repeat"], rows["prompt_id"], strict=True)
    return {key: list(ids) for key, ids in zip(keys, rows["output_token_ids"], strict=True)}


@pytest.fixture(scope="module")
def uninterrupted():
    """Outputs of the whole run, made by the first test that needs them."""
    return {}


def assert_as_uninterrupted(cli, toy, run: RunDirectory, uninterrupted: dict, tmp_path: Path) -> None:
    if not uninterrupted:
        assert cli(*toy, *TWICE, "--output-dir", tmp_path / "whole").exit_code == 0
        (path,) = (tmp_path / "whole").iterdir()
        uninterrupted.update(outputs(RunDirectory.open(path)))
    assert run.record.status == "complete" and run.done_blocks() == BLOCKS
    assert outputs(run) == uninterrupted and len(uninterrupted) == 4 * 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_keeps_what_was_measured(cli, toy, only_run, uninterrupted, tmp_path, number):
    code, out, err = signalled([*toy, *TWICE], number, block=3)
    assert code == 130 and "Traceback" not in err, err
    run = only_run()
    assert err.splitlines()[-1].endswith(f"Continue with: specbench run --resume {run.path}")
    assert run.record.status == "interrupted"
    assert run.done_blocks() == {("no-spec", 0), ("ngram:k=2", 0)} and run.failed_blocks() == {}
    rows = [line for line in out.splitlines()[1:] if line.startswith(("no-spec", "ngram"))]
    assert [row.split()[0] for row in rows] == ["no-spec", "ngram:k=2"]
    assert all(re.search(r" \d+(\.\d+)? ", row) for row in rows), "what was measured is shown"

    result = cli("run", "--resume", run.path)
    assert result.exit_code == 0, result.output
    assert len(re.findall(r": repeat \d+ of \d+, ", result.stderr)) == 2, "only what is missing is measured"
    assert_as_uninterrupted(cli, toy, only_run(), uninterrupted, tmp_path)
    (resumed,) = only_run().record.resumes
    assert resumed.argv[0] == "specbench"


def test_a_kill_loses_one_block(cli, toy, only_run, uninterrupted, tmp_path):
    code, out, _ = signalled([*toy, *TWICE], signal.SIGKILL, block=4)
    run = only_run()
    assert code == -signal.SIGKILL and out == "" and run.record.status == "running"
    assert run.done_blocks() == {("no-spec", 0), ("ngram:k=2", 0), ("ngram:k=2", 1)}
    shown = cli("show", run.path)
    again = f"(interrupted: 1 of 2 repeats; continue with `specbench run --resume {run.path}`)"
    assert shown.exit_code == 0 and again in shown.stdout
    assert again in " ".join(cli("show", run.path, "--format", "wide").stdout.split())
    with run_lock(run.path):
        assert "(running)" in cli("show", run.path).stdout
    assert cli("run", "--resume", run.path, "--quiet").exit_code == 0
    assert_as_uninterrupted(cli, toy, only_run(), uninterrupted, tmp_path)


def test_ctrl_c_before_anything_is_measured(toy, only_run):
    code, out, err = signalled([*toy, *TWICE], signal.SIGINT, block=1)
    assert code == 130 and "Traceback" not in err and "--resume" in err.splitlines()[-1]
    assert only_run().done_blocks() == set() and "not run" in out


def test_sizes_that_were_not_started_are_said(toy, runs):
    code, _, err = signalled([*toy, "-s", "no-spec", "--batch-sizes", "1,2,3"], signal.SIGINT, block=2)
    assert code == 130 and len(list(runs.iterdir())) == 2, err
    resumes, rest = err.splitlines()[-2:]
    assert "Continue with: specbench run --resume" in resumes and "-b2-" in resumes
    assert rest.startswith("specbench: not started: concurrency 3. Measure with: specbench run --load-format dummy ")
    assert rest.endswith(" --batch-sizes 1,2,3 --batch-sizes 3"), "the last one counts"


def test_nothing_to_do(cli, toy, only_run):
    cli(*toy, "-s", "no-spec")
    table = cli("show", only_run().path).stdout
    result = cli("run", "--resume", only_run().path)
    assert result.exit_code == 0 and "nothing to do: all 1 blocks of" in result.stderr
    answered, _, _ = table.rpartition("all of it:")  # where `show` was asked, it says less
    assert answered and "loading" not in result.stderr and result.stdout.startswith(answered)
    assert only_run().record.resumes == ()


def edit(run: RunDirectory, change) -> None:
    raw = json.loads((run.path / "run.json").read_text())
    change(raw)
    (run.path / "run.json").write_text(json.dumps(raw))


def unfinished(section: str, **changes):
    """A run with a block to go, recorded as measured on something else."""

    def change(raw: dict) -> None:
        raw["config"]["num_repeats"] = 2
        raw[section].update(changes)

    return change


REFUSED = {
    "another version's config": (lambda m: m["config"].update(colour=1), "config: colour: not known to this version"),
    "other prompts": (unfinished("workload", sha256="f" * 64), "was measured on prompts ffffffffffff"),
    "another model": (unfinished("model", dtype="bfloat16"), "the model's dtype 'bfloat16', it is now 'float32'"),
    "another machine": (unfinished("environment", hardware={"cpu": {"model": "Z80"}}), "was measured on Z80"),
    "other rows": (
        lambda m: [unfinished("sampling", request_rate=9)(m), m.pop("rows_version")],
        "has rows of version 1 (",
    ),
    "another schema": (lambda m: m.update(schema="specbench.run/99"), "'specbench.run/99', this version reads"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_run_that_cannot_go_on_here(cli, toy, only_run, case):
    change, words = REFUSED[case]
    cli(*toy, "-s", "no-spec")
    run = only_run()
    edit(run, change)
    before = (run.path / "run.json").read_text()
    result = cli("run", "--resume", run.path)
    assert result.exit_code == 2 and words in result.stderr.splitlines()[-1]
    assert (run.path / "run.json").read_text() == before


def test_ctrl_c_waits_for_a_write():
    written = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), deferred_interrupt():
            signal.raise_signal(signal.SIGINT)
            written.append("whole")
        assert written == ["whole"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_is_no_run(cli, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        result = cli("run", "--resume", path)
        assert result.exit_code == 2 and f"{path}: not a run directory (no run.json)" in result.stderr


@pytest.mark.parametrize("num_repeats", [1, 2])
def test_a_lost_table_is_named_before_anything_is_loaded(cli, toy, only_run, num_repeats):
    cli(*toy, "-s", "no-spec")
    run = only_run()
    edit(run, lambda raw: raw["config"].update(num_repeats=num_repeats))
    (run.path / "steps.parquet").unlink()
    words = f"{run.path / 'steps.parquet'}: missing; restore it from a copy, or remove {run.path / 'requests.parquet'}"
    for command in (["run", "--resume", run.path], ["show", run.path]):
        result = cli(*command)
        assert result.exit_code == 2 and words in result.stderr and "loading" not in result.stderr
    (run.path / "requests.parquet").unlink()
    assert cli("run", "--resume", run.path).exit_code == 0 and only_run().record.status == "complete"


def test_other_options_beside_resume_are_refused(cli, tmp_path):
    result = cli("run", "--resume", tmp_path, "--seed", 1, "-s", "ngram", "--format", "json")
    assert result.exit_code == 2 and "--format" not in result.stderr
    assert all(word in result.stderr for word in ("drop ", "--strategy", "--seed"))


def test_a_run_that_is_being_measured(cli, toy, only_run):
    cli(*toy, "-s", "no-spec")
    with run_lock(only_run().path):
        result = cli("run", "--resume", only_run().path)
    assert result.exit_code == 2 and "is being measured by another process" in result.stderr
