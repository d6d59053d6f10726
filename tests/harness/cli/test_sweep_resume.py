"""`specbench sweep --resume`: after a kill at every stage nothing is measured again, and nothing is lost."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from specbench.harness.cli import sweep_output
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.experiments import run as run_experiment
from specbench.harness.experiments import sweep as sweep_experiment
from specbench.harness.run import runner
from specbench.harness.run.run_lock import run_lock
from specbench.harness.store.environment import Cpu, Environment, Hardware
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.sweep_directory import SweepDirectory

GRID = ("-s", "ngram", "--num-drafts", "1,2", "--max-concurrency", "1,2")
SMALL = ("-s", "ngram:k=1", "--max-concurrency", "1,2", "--num-repeats", 2)  # 8 blocks, 4 of each point


class Killed(BaseException):
    """As SIGKILL: nothing of ours handles it."""


def test_resume_of_what_is_no_sweep(cli, tmp_path):
    result = cli("sweep", "--resume", tmp_path)
    assert result.exit_code == 2 and "not a sweep (no sweep.json)" in result.stderr
    (tmp_path / "sweep.json").write_text('{"schema": "specbench.sweep/9"}')
    assert "this version reads 'specbench.sweep/2'" in cli("sweep", "--resume", tmp_path).stderr
    (tmp_path / "sweep.json").write_text("{")
    assert "damaged" in cli("show", tmp_path).stderr
    (tmp_path / "sweep.json").write_text('{"schema": "specbench.sweep/1"}')
    assert "sweep.json: config: Expected" in cli("show", tmp_path).stderr


def half_made_run(output_dir: Path, *rest, **more):
    os.makedirs(Path(output_dir) / "20260101T000000Z-b1-00000000")
    raise Killed


def at_call(whole, number: int, how: BaseException, after: bool = False):
    """`whole`, but its `number`-th call ends in `how`; `after` it has done its work."""
    calls: list[int] = []

    def call(*words, **named):
        calls.append(1)
        if len(calls) == number and not after:
            raise how
        found = whole(*words, **named)
        if len(calls) == number:
            raise how
        return found

    return call


STAGES = {
    "limits": (sweep_experiment, "measure_machine", 1, False),
    "first preparation": (run_experiment, "prepare", 1, False),
    "first block": (NativeDeployment, "measure", 1, False),
    "fourth block, not written": (NativeDeployment, "measure", 4, True),
    "closing the first point": (runner, "close", 1, False),
    "first point closed": (runner, "close", 1, True),
    "reports of the first point": (sweep_output, "write_reports", 1, False),
    "between points": (sweep_output, "write_reports", 1, True),
    "second preparation": (run_experiment, "prepare", 2, True),
    "block of the second point": (NativeDeployment, "measure", 6, True),
    "second point closed": (runner, "close", 2, True),
    "crossover": (sweep_output, "write_sweep_reports", 1, False),
}


@pytest.mark.parametrize("stage", STAGES)
def test_resume_after_a_kill(cli, toy_sweep, only_sweep, blocks, stage):
    module, name, number, after = STAGES[stage]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, at_call(getattr(module, name), number, Killed(), after))
        with pytest.raises(Killed):
            cli(*toy_sweep, *SMALL)
    before = {run.path.name: run.done_blocks() for run in only_sweep().runs().values()}
    if stage == "between points":
        shown = cli("show", only_sweep().path)
        assert "(status interrupted)" in " ".join(shown.stdout.split())
        assert shown.stderr.endswith(f"Continue with: specbench sweep --resume {only_sweep().path}\n")
    blocks.clear()
    result = cli("sweep", "--resume", only_sweep().path)
    assert result.exit_code == 0, result.output
    assert len(blocks) == 8 - sum(map(len, before.values())), "a finished block is not measured again"
    assert_whole(only_sweep())
    blocks.clear()
    again = cli("sweep", "--resume", only_sweep().path)
    assert "nothing to do: all 2 points" in again.stderr and blocks == [] and again.stdout == result.stdout


def assert_whole(sweep: SweepDirectory) -> None:
    assert sweep.record.status == "complete" and list(sweep.runs()) == [1, 2]
    assert [p.status for p in sweep.record.points] == ["complete", "complete"]
    assert all(len(run.done_blocks()) == 4 for run in sweep.runs().values())
    assert all((run / "run.json").is_file() for run in sweep.runs_path.iterdir())
    record = json.loads((sweep.path / "crossover.json").read_text())
    assert all(point["tpot"] for arm in record["arms"][1:] for point in arm["points"])
    outputs = [{tuple(ids) for ids in run.frames().requests["output_token_ids"]} for run in sweep.runs().values()]
    assert outputs[0] == outputs[1], "greedy output depends on neither load nor resuming"


def test_a_kill_while_a_run_directory_is_made(cli, toy_sweep, only_sweep):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "create", staticmethod(half_made_run))
        with pytest.raises(Killed):
            cli(*toy_sweep, *SMALL)
    assert len(list(only_sweep().runs_path.iterdir())) == 1
    assert cli("sweep", "--resume", only_sweep().path).exit_code == 0
    assert_whole(only_sweep())


@pytest.mark.parametrize("stage", ["first preparation", "fourth block, not written", "second preparation"])
def test_ctrl_c_keeps_everything_and_says_how_to_go_on(cli, toy_sweep, only_sweep, stage):
    module, name, number, after = STAGES[stage]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, at_call(getattr(module, name), number, KeyboardInterrupt(), after))
        result = cli(*toy_sweep, *SMALL)
    assert result.exit_code == 130, result.output
    sweep = only_sweep()
    assert result.stderr.splitlines()[-1].endswith(f"Continue with: specbench sweep --resume {sweep.path}")
    assert sweep.record.status == "interrupted" and (sweep.path / "crossover.json").is_file()
    assert cli("sweep", "--resume", sweep.path, "--quiet").exit_code == 0
    assert_whole(only_sweep())
    assert len(only_sweep().record.resumes) == 1


def test_one_process_a_sweep(cli, toy_sweep, only_sweep):
    cli(*toy_sweep, *GRID)
    before = (only_sweep().path / "sweep.json").read_text()
    with run_lock(only_sweep().path):
        result = cli("sweep", "--resume", only_sweep().path)
    assert result.exit_code == 2 and "is being measured by another process" in result.stderr
    assert (only_sweep().path / "sweep.json").read_text() == before


def test_an_error_between_points_says_how_to_go_on(cli, toy_sweep, only_sweep, monkeypatch):
    monkeypatch.setattr(run_experiment, "prepare", at_call(run_experiment.prepare, 2, ValueError("the model is gone")))
    result = cli(*toy_sweep, *GRID)
    assert result.exit_code == 2 and "the model is gone" in result.stderr.splitlines()[-1]
    assert f"resume with: specbench sweep --resume {only_sweep().path}" in result.stderr
    assert only_sweep().record.status == "interrupted" and list(only_sweep().runs()) == [1]


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (("environment", Environment(hardware=Hardware(cpu=Cpu(model="another")))), "was measured on another"),
        (("workload", WorkloadRecord(sha256="0" * 64)), "was measured on prompts 000000000000"),
    ],
)
def test_a_curve_is_of_one_machine_and_one_set_of_prompts(cli, toy_sweep, only_sweep, blocks, stored, words):
    """The first point is over, the second not begun: nothing else would compare them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_output, "write_reports", at_call(sweep_output.write_reports, 1, Killed(), after=True))
        with pytest.raises(Killed):
            cli(*toy_sweep, *SMALL)
    (run,) = only_sweep().runs().values()
    key, change = stored
    run.put(replace(run.record, **{key: change}))
    blocks.clear()
    result = cli("sweep", "--resume", only_sweep().path)
    assert result.exit_code == 2 and words in result.stderr.splitlines()[-1], result.output
    assert blocks == [] and list(only_sweep().runs()) == [1]


def test_arms_that_failed_stay_and_it_is_said_how_to_try_them_again(cli, toy_sweep, only_sweep, blocks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeDeployment, "measure", at_call(NativeDeployment.measure, 2, RuntimeError("out of memory")))
        assert cli(*toy_sweep, *SMALL).exit_code == 1
    (failed, _), sweep = only_sweep().runs().values(), only_sweep()
    blocks.clear()
    result = cli("sweep", "--resume", sweep.path)
    assert result.exit_code == 1 and blocks == [] and f"specbench run --resume {failed.path}, then" in result.stderr
    assert cli("run", "--resume", failed.path).exit_code == 0
    assert cli("sweep", "--resume", sweep.path).exit_code == 0
    assert_whole(only_sweep())


def test_a_run_of_something_else_in_its_folder_is_named(cli, toy, toy_sweep, only_sweep):
    cli(*toy_sweep, *SMALL)
    sweep = only_sweep()
    cli(*toy, "-s", "no-spec", "--output-dir", sweep.runs_path)
    result = cli("show", sweep.path)
    assert result.exit_code == 2 and "not a run of this sweep" in result.stderr
