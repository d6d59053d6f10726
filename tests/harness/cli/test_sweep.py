"""`specbench sweep`: points, resume after a kill at every stage, refused arms, bad input, what it prints again."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from specbench.harness import prepare, runner
from specbench.harness.cli import run_session, sweep_session
from specbench.harness.cli.run_lock import run_lock
from specbench.harness.measure.record import RunDirectory
from specbench.harness.roofline.machine import Machine
from specbench.harness.sweep.record import SweepDirectory
from specbench.reports import sweep_report

MACHINE = Machine(
    device="CPU",
    dtype="float32",
    read_bytes_per_s=1e10,
    matmul_flops_per_s=1e11,
    attention_flops_per_s=1e11,
    kernel_launch_s=1e-6,
)
GRID = ("-s", "ngram", "--num-drafts", "1,2", "--max-concurrency", "1,2")
SMALL = ("-s", "ngram:k=1", "--max-concurrency", "1,2", "--num-repeats", 2)  # 8 blocks, 4 of each point
LABELS = ["no-spec", "ngram:k=1", "ngram:k=2"]


class Killed(BaseException):
    """As SIGKILL: nothing of ours handles it."""


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine whose limits are known at once."""
    monkeypatch.setattr(sweep_session, "measure_machine", lambda device, dtype: MACHINE)


@pytest.fixture
def no_pictures(monkeypatch):
    """They, and the reports of the points, take most of the time of a tiny sweep."""
    monkeypatch.setattr(sweep_session, "write_reports", lambda run: [])
    monkeypatch.setattr(sweep_report, "_write_pictures", lambda folder, record: [])


@pytest.fixture
def toy_sweep(toy) -> list[str]:
    return ["sweep", *toy[1:]]


@pytest.fixture
def only_sweep(runs: Path):
    def find() -> SweepDirectory:
        (path,) = runs.iterdir()
        return SweepDirectory.open(path)

    return find


@pytest.fixture
def blocks(monkeypatch) -> list[str]:
    """Labels of the blocks that are measured, as they are."""
    measured: list[str] = []

    def run_block(engine, load, on_finish=None, whole=runner.run_block):
        rows = whole(engine, load, on_finish)
        measured.append(f"{engine.strategy.name} {load.max_concurrency}")
        return rows

    monkeypatch.setattr(runner, "run_block", run_block)
    return measured


def test_a_sweep_and_what_it_leaves(cli, toy_sweep, only_sweep):
    result = cli(*toy_sweep, *GRID, "--num-repeats", 2)
    assert result.exit_code == 0, result.output
    sweep = only_sweep()
    assert (sweep.manifest["schema"], sweep.manifest["status"]) == ("specbench.sweep/1", "complete")
    assert sweep.manifest["argv"][0] == "specbench" and Machine.from_dict(sweep.manifest["machine"]) == MACHINE
    assert [p["status"] for p in sweep.manifest["points"]] == ["complete", "complete"]
    runs = sweep.runs()
    assert list(runs) == [1, 2] and [run.manifest["sampling"]["max_concurrency"] for run in runs.values()] == [1, 2]
    for load, run in runs.items():
        assert run.done_blocks() == {(label, n) for label in LABELS for n in (0, 1)}
        assert run.manifest["sweep"] == {
            "sweep_id": sweep.path.name,
            "max_concurrency": load,
            "num_points": 2,
        } and run.path.name.split("-")[2] == (f"b{load}")
        assert (run.path / "report.md").is_file()
    assert "point 2 of 2: 2 requests at once, 3 arms" in result.stderr and "no-spec was added" in result.stderr
    for words in (
        "Speed-up of TPOT by",
        "Throughput (TPS) by",
        "Best number of drafts",
        "Ideal speed-up",
        "stops paying",
    ):
        assert words in result.stdout
    assert {"crossover.json", "crossover.md", "plots"} <= {path.name for path in sweep.path.iterdir()}
    record = json.loads((sweep.path / "crossover.json").read_text())
    assert record["loads"] == [1, 2] and [arm["label"] for arm in record["arms"]] == LABELS
    speedups = {arm["label"]: [p["tpot"] and p["tpot"]["ratio"] for p in arm["points"]] for arm in record["arms"]}
    for n, run in enumerate(runs.values()):
        stored = {arm["label"]: arm["speedup"] for arm in run.manifest["results"]["arms"]}
        assert speedups["ngram:k=2"][n] == pytest.approx(stored["ngram:k=2"]["tpot_ratio"])
    assert all(point["ideal"]["ideal_speedup"] > 0 for arm in record["arms"] for point in arm["points"])

    shown = cli("show", sweep.path)
    assert shown.exit_code == 0 and result.stdout.startswith(shown.stdout)
    assert json.loads(cli("show", sweep.path / "sweep.json", "--json").stdout) == record
    written = cli("show", sweep.path, "--markdown", "--write")
    assert written.stdout.startswith(f"# {sweep.path.name}") and "wrote" in written.stderr


def test_a_dry_run_measures_nothing(cli, toy_sweep, runs, blocks):
    result = cli(*toy_sweep, *GRID, "--acceptance", "synthetic:2.5", "--dry-run")
    assert result.exit_code == 0 and not runs.exists() and blocks == []
    assert "1 at once  2 at once" in result.stdout and "ngram:k=1: refused: acceptance: synthetic" in result.stdout
    plan = json.loads(cli(*toy_sweep, *GRID, "--dry-run", "--json").stdout)
    assert [p["max_concurrency"] for p in plan["points"]] == [1, 2] and [a["label"] for a in plan["arms"]] == LABELS


@pytest.mark.usefixtures("no_pictures")
def test_refused_arms_are_rows(cli, toy_sweep, only_sweep):
    result = cli(*toy_sweep, *GRID, "--acceptance", "synthetic:2.5", "--json", "--quiet")
    assert result.exit_code == 0 and result.stderr == ""
    record = json.loads(result.stdout)
    assert [arm["label"] for arm in record["arms"]] == ["no-spec", "ngram:k=2"]
    (refused,) = record["refused"]
    assert refused["label"] == "ngram:k=1" and "2.5 is not allowed" in refused["refused"]
    assert "| ngram:k=1 | refused | refused |" in (only_sweep().path / "crossover.md").read_text()


@pytest.mark.usefixtures("no_pictures")
def test_an_arm_that_does_not_fit_at_a_load_is_a_row_and_the_sweep_goes_on(cli, toy_sweep, only_sweep, monkeypatch):
    def build_engine(arm, config, target, cache=None, whole=prepare.build_engine):
        if arm.strategy.num_drafts == 2 and config.max_concurrency == 1:
            raise RuntimeError("out of memory: 3 GB asked for\nand more")
        if arm.strategy.num_drafts == 1 and config.max_concurrency == 2:
            raise ValueError("num_pages: 7 is not allowed")
        return whole(arm, config, target, cache)

    monkeypatch.setattr(prepare, "build_engine", build_engine)
    result = cli(*toy_sweep, *GRID)
    assert result.exit_code == 1
    sweep = only_sweep()
    assert sweep.manifest["status"] == "complete"
    one, two = sweep.runs().values()
    assert set(one.failed_blocks()) == {("ngram:k=2", 0)} and set(two.failed_blocks()) == {("ngram:k=1", 0)}
    rows = {
        line.split()[0]: re.split(" {2,}", line) for line in result.stdout.split("Throughput")[0].splitlines() if line
    }
    assert rows["ngram:k=2"][1] == "failed" and rows["ngram:k=1"][2] == "failed" and "x" in rows["ngram:k=1"][1]
    assert "ngram:k=2 (synthetic), 1 at once: RuntimeError: out of memory" in result.stdout
    assert "ngram:k=1 (synthetic), 2 at once: ValueError: num_pages: 7 is not allowed" in result.stdout


def test_a_strategy_that_can_never_run_is_bad_input(cli, toy_sweep, runs):
    result = cli(*toy_sweep, "-s", "eagle:head=/nowhere", "--max-concurrency", "1,2", "--num-drafts", 1)
    assert result.exit_code == 2 and result.stderr.splitlines()[-1].startswith(
        "specbench: error: eagle:k=1,head=/nowhere"
    )
    assert not any(runs.iterdir())


BAD = {
    "one load": (("--max-concurrency", "4"), "max_concurrency: '4' is one load"),
    "loads": (("--max-concurrency", "1,x"), "max_concurrency: '1,x' is not allowed; allowed: different numbers"),
    "drafts": (("--num-drafts", "2,2"), "num_drafts: '2,2' is not allowed"),
    "few prompts": (("--max-concurrency", "1,64"), "num_prompts: 3 prompts never keep 64 requests in flight"),
    "strategy": (("-s", "ngrm"), "did you mean 'ngram'"),
    "twice": (("-s", "ngram:k=1", "-s", "ngram"), "'ngram:k=1' is given twice"),
    "of run": (("--num-repeats", 0), "num_repeats: 0 is not allowed"),
    "head": (("--head", "random"), "head: 'random' is of no use"),
    "accuracy": (("--accuracy", "gsm8k"), "accuracy: random weights"),
    "resume": (("--resume", "nowhere"), "--output-dir, --strategy, --max-concurrency"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(cli, toy_sweep, runs, case):
    words, message = BAD[case]
    result = cli(*toy_sweep, "-s", "no-spec", "--max-concurrency", "1,2", *words)
    assert result.exit_code == 2 and message in result.stderr.splitlines()[-1], result.output
    assert not runs.exists()


def test_resume_of_what_is_no_sweep(cli, tmp_path):
    result = cli("sweep", "--resume", tmp_path)
    assert result.exit_code == 2 and "not a sweep (no sweep.json)" in result.stderr
    (tmp_path / "sweep.json").write_text('{"schema": "specbench.sweep/9"}')
    assert "this version reads 'specbench.sweep/1'" in cli("sweep", "--resume", tmp_path).stderr
    (tmp_path / "sweep.json").write_text("{")
    assert "damaged" in cli("show", tmp_path).stderr
    (tmp_path / "sweep.json").write_text('{"schema": "specbench.sweep/1"}')
    assert "half written" in cli("show", tmp_path).stderr


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
    "limits": (sweep_session, "measure_machine", 1, False),
    "first preparation": (run_session, "prepare", 1, False),
    "first block": (runner, "run_block", 1, False),
    "fourth block, not written": (runner, "run_block", 4, True),
    "closing the first point": (runner, "close", 1, False),
    "first point closed": (runner, "close", 1, True),
    "reports of the first point": (sweep_session, "write_reports", 1, False),
    "between points": (sweep_session, "write_reports", 1, True),
    "second preparation": (run_session, "prepare", 2, True),
    "block of the second point": (runner, "run_block", 6, True),
    "second point closed": (runner, "close", 2, True),
    "crossover": (sweep_session, "write_sweep_reports", 1, False),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.usefixtures("no_pictures")
def test_resume_after_a_kill(cli, toy_sweep, only_sweep, blocks, stage):
    module, name, number, after = STAGES[stage]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, at_call(getattr(module, name), number, Killed(), after))
        with pytest.raises(Killed):
            cli(*toy_sweep, *SMALL)
    before = {run.path.name: run.done_blocks() for run in only_sweep().runs().values()}
    blocks.clear()
    result = cli("sweep", "--resume", only_sweep().path)
    assert result.exit_code == 0, result.output
    assert len(blocks) == 8 - sum(map(len, before.values())), "a finished block is not measured again"
    assert_whole(only_sweep())
    blocks.clear()
    again = cli("sweep", "--resume", only_sweep().path)
    assert "nothing to do: all 2 points" in again.stderr and blocks == [] and again.stdout == result.stdout


def assert_whole(sweep: SweepDirectory) -> None:
    assert sweep.manifest["status"] == "complete" and list(sweep.runs()) == [1, 2]
    assert [p["status"] for p in sweep.manifest["points"]] == ["complete", "complete"]
    assert all(len(run.done_blocks()) == 4 for run in sweep.runs().values())
    assert all((run / "run.json").is_file() for run in sweep.runs_path.iterdir())
    record = json.loads((sweep.path / "crossover.json").read_text())
    assert all(point["tpot"] for arm in record["arms"][1:] for point in arm["points"])
    outputs = [{tuple(ids) for ids in run.frames().requests["output_token_ids"]} for run in sweep.runs().values()]
    assert outputs[0] == outputs[1], "greedy output depends on neither load nor resuming"


@pytest.mark.usefixtures("no_pictures")
def test_a_kill_while_a_run_directory_is_made(cli, toy_sweep, only_sweep):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "create", staticmethod(half_made_run))
        with pytest.raises(Killed):
            cli(*toy_sweep, *SMALL)
    assert len(list(only_sweep().runs_path.iterdir())) == 1
    assert cli("sweep", "--resume", only_sweep().path).exit_code == 0
    assert_whole(only_sweep())


@pytest.mark.parametrize("stage", ["first preparation", "fourth block, not written", "second preparation"])
@pytest.mark.usefixtures("no_pictures")
def test_ctrl_c_keeps_everything_and_says_how_to_go_on(cli, toy_sweep, only_sweep, stage):
    module, name, number, after = STAGES[stage]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, at_call(getattr(module, name), number, KeyboardInterrupt(), after))
        result = cli(*toy_sweep, *SMALL)
    assert result.exit_code == 130, result.output
    sweep = only_sweep()
    assert result.stderr.splitlines()[-1].endswith(f"Go on with: specbench sweep --resume {sweep.path}")
    assert sweep.manifest["status"] == "interrupted" and (sweep.path / "crossover.json").is_file()
    assert cli("sweep", "--resume", sweep.path, "--quiet").exit_code == 0
    assert_whole(only_sweep())
    assert len(only_sweep().manifest["resumes"]) == 1


@pytest.mark.usefixtures("no_pictures")
def test_one_process_a_sweep(cli, toy_sweep, only_sweep):
    cli(*toy_sweep, *GRID)
    before = (only_sweep().path / "sweep.json").read_text()
    with run_lock(only_sweep().path):
        result = cli("sweep", "--resume", only_sweep().path)
    assert result.exit_code == 2 and "is being measured by another process" in result.stderr
    assert (only_sweep().path / "sweep.json").read_text() == before


@pytest.mark.usefixtures("no_pictures")
def test_an_error_between_points_says_how_to_go_on(cli, toy_sweep, only_sweep, monkeypatch):
    monkeypatch.setattr(run_session, "prepare", at_call(run_session.prepare, 2, ValueError("the model is gone")))
    result = cli(*toy_sweep, *GRID)
    assert result.exit_code == 2 and "the model is gone" in result.stderr.splitlines()[-1]
    assert f"go on with: specbench sweep --resume {only_sweep().path}" in result.stderr
    assert only_sweep().manifest["status"] == "interrupted" and list(only_sweep().runs()) == [1]


@pytest.mark.usefixtures("no_pictures")
def test_without_the_machines_limits_there_is_no_ideal(cli, toy_sweep, monkeypatch):
    def fails(device, dtype):
        raise RuntimeError("no memory for the probe")

    monkeypatch.setattr(sweep_session, "measure_machine", fails)
    result = cli(*toy_sweep, *GRID)
    assert result.exit_code == 0 and "no ideal speed-ups: the machine's limits" in result.stderr
    assert "Ideal" not in result.stdout
