"""`specbench sweep`: points, refused arms, bad input, what it prints again."""

from __future__ import annotations

import json
import re

import pytest
from cli.conftest import assert_refused

from specbench.harness.engines.native import adapter as native
from specbench.harness.experiments import sweep as sweep_experiment
from specbench.harness.store.purpose import SweepPoint
from specbench.harness.store.run_directory import RunDirectory

GRID = ("-s", "ngram", "--num-drafts", "1,2", "--max-concurrency", "1,2")
LABELS = ["no-spec", "ngram:k=1", "ngram:k=2"]


def test_a_sweep_and_what_it_leaves(cli, toy_sweep, only_sweep, machine):
    result = cli(*toy_sweep, *GRID, "--num-repeats", 2)
    assert result.exit_code == 0, result.output
    sweep = only_sweep()
    assert (sweep.record.schema, sweep.record.status) == ("specbench.sweep/2", "complete")
    assert sweep.record.argv[0] == "specbench" and sweep.record.machine == machine
    assert [p.status for p in sweep.record.points] == ["complete", "complete"]
    runs = sweep.runs()
    assert list(runs) == [1, 2] and [run.record.sampling.max_concurrency for run in runs.values()] == [1, 2]
    for load, run in runs.items():
        assert run.done_blocks() == {(label, n) for label in LABELS for n in (0, 1)}
        point = SweepPoint(sweep_id=sweep.path.name, max_concurrency=load, num_points=2)
        assert run.record.purpose.sweep == point and run.path.name.split("-")[2] == (f"b{load}")
        assert (run.path / "report.md").is_file()
    assert "point 2 of 2: concurrency 2, 3 arms" in result.stderr and "no-spec was added" in result.stderr
    assert result.stderr.index("estimated time of all 2 remaining points: -") < result.stderr.index("arm 1 of 3")
    wide = cli("show", sweep.path, "--format", "wide").stdout
    for words in (
        "Speed-up of TPOT by",
        "Throughput (TPS) by",
        "Best number of drafts",
        "Ideal speed-up",
        "break-even concurrency",
    ):
        assert words in wide
    for words in ("Speed-up of TPOT by", "break-even [95% CI]", "at 2", f"sweep directory: {sweep.path}"):
        assert words in result.stdout
    assert "Throughput" not in result.stdout
    assert {"crossover.json", "crossover.md", "plots"} <= {path.name for path in sweep.path.iterdir()}
    record = json.loads((sweep.path / "crossover.json").read_text())
    assert record["loads"] == [1, 2] and [arm["label"] for arm in record["arms"]] == LABELS
    speedups = {arm["label"]: [p["tpot"] and p["tpot"]["ratio"] for p in arm["points"]] for arm in record["arms"]}
    for n, run in enumerate(runs.values()):
        stored = {arm.label: arm.speedup for arm in run.record.results.arms}
        assert speedups["ngram:k=2"][n] == pytest.approx(stored["ngram:k=2"].tpot_ratio)
    assert all(point["ideal"]["ideal_speedup"] > 0 for arm in record["arms"] for point in arm["points"])

    shown = cli("show", sweep.path)
    assert shown.exit_code == 0 and result.stdout.startswith(shown.stdout)
    assert json.loads(cli("show", sweep.path / "sweep.json", "--format", "json").stdout) == record
    written = cli("show", sweep.path, "--format", "md", "--write")
    assert written.stdout.startswith(f"# {sweep.path.name}") and "wrote" in written.stderr


def test_the_number_of_drafts_by_the_sweeps_own_table(cli, toy, toy_sweep, only_sweep, runs):
    assert cli(*toy_sweep, *GRID).exit_code == 0
    table = only_sweep().path / "draft_table.json"
    result = cli(*toy, "-s", "no-spec", "-s", f"ngram:k=auto,k_table={table}")
    assert result.exit_code == 0, result.output
    (path,) = runs.glob("*-run-*")
    run = RunDirectory.open(path)
    arm = run.record.arms[1]
    assert arm.config.has_auto_k and arm.config.num_drafts == 2
    assert run.record.results.arms[1].speedup.same_output_rate == 1
    shares = run.record.results.arms[1].group("rounds_by_drafts")
    assert shares.keys() <= {"0", "1", "2"} and sum(shares.values()) == pytest.approx(1)
    assert "drafts/round" in (path / "report.md").read_text()


def test_a_dry_run_measures_nothing(cli, toy_sweep, runs, blocks):
    result = cli(*toy_sweep, *GRID, "--acceptance", "synthetic:2.5", "--dry-run")
    assert result.exit_code == 0 and not runs.exists() and blocks == []
    assert (
        "concurrency 1  concurrency 2" in result.stdout and "ngram:k=1: refused: acceptance: synthetic" in result.stdout
    )
    plan = json.loads(cli(*toy_sweep, *GRID, "--dry-run", "--format", "json").stdout)
    assert [p["max_concurrency"] for p in plan["points"]] == [1, 2] and [a["label"] for a in plan["arms"]] == LABELS


def test_a_folder_that_takes_no_sweep_is_named_before_anything_is_measured(cli, toy_sweep, runs, blocks, monkeypatch):
    file = runs.parent / "file"
    file.write_text("")
    for folder in (file, file / "runs"):
        assert_refused(cli(*toy_sweep, *GRID, "--output-dir", folder), runs, f"output_dir: {file} is not a directory")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert_refused(cli(*toy_sweep, *GRID), runs, f"output_dir: cannot write to {runs.parent}")
    assert blocks == []


@pytest.mark.parametrize("taken", ["crossover.json", "crossover.md", "draft_table.json"])
def test_a_report_that_cannot_be_written_is_named(cli, toy_sweep, only_sweep, taken):
    assert cli(*toy_sweep, *GRID).exit_code == 0
    file = only_sweep().path / taken
    file.unlink()
    file.mkdir()
    shown = cli("show", only_sweep().path, "--write")
    error = f"error: write: cannot write to {only_sweep().path}: Is a directory ({file})\n"
    assert shown.exit_code == 2 and shown.stderr.endswith(error) and "TPOT" in shown.stdout
    again = cli("sweep", "--resume", only_sweep().path)
    assert again.exit_code == 2 and f"Is a directory ({file})\n" in again.stderr


def test_refused_arms_are_rows(cli, toy_sweep, only_sweep):
    result = cli(*toy_sweep, *GRID, "--acceptance", "synthetic:2.5", "--format", "json", "--quiet")
    assert result.exit_code == 0 and result.stderr == ""
    record = json.loads(result.stdout)
    assert [arm["label"] for arm in record["arms"]] == ["no-spec", "ngram:k=2"]
    (refused,) = record["refused"]
    assert refused["label"] == "ngram:k=1" and "2.5 is not allowed" in refused["refused"]
    assert "| ngram:k=1 | refused | refused |" in (only_sweep().path / "crossover.md").read_text()


def test_an_arm_that_does_not_fit_at_a_load_is_a_row_and_the_sweep_goes_on(cli, toy_sweep, only_sweep, monkeypatch):
    def build_engine(arm, config, target, cache=None, whole=native.build_engine):
        if arm.strategy.num_drafts == 2 and config.max_concurrency == 1:
            raise RuntimeError("out of memory: 3 GB asked for\nand more")
        if arm.strategy.num_drafts == 1 and config.max_concurrency == 2:
            raise ValueError("num_pages: 7 is not allowed")
        return whole(arm, config, target, cache)

    monkeypatch.setattr(native, "build_engine", build_engine)
    result = cli(*toy_sweep, *GRID)
    assert result.exit_code == 1
    sweep = only_sweep()
    assert sweep.record.status == "complete"
    one, two = sweep.runs().values()
    assert set(one.failed_blocks()) == {("ngram:k=2", 0)} and set(two.failed_blocks()) == {("ngram:k=1", 0)}
    rows = {line.split()[0]: re.split(" {2,}", line) for line in result.stdout.splitlines() if line}
    assert rows["ngram:k=2"][2] == "failed" and rows["ngram:k=1"][3] == "failed" and "x" in rows["ngram:k=1"][2]
    assert "ngram:k=2 (synthetic), concurrency 1: RuntimeError: out of memory" in result.stdout
    assert "ngram:k=1 (synthetic), concurrency 2: ValueError: num_pages: 7 is not allowed" in result.stdout


def test_a_strategy_that_can_never_run_is_bad_input(cli, toy_sweep, runs):
    result = cli(*toy_sweep, "-s", "eagle:head=/nowhere", "--max-concurrency", "1,2", "--num-drafts", 1)
    said = result.stderr.splitlines()[-1]
    assert result.exit_code == 2 and said.startswith("specbench: error: eagle: head='/nowhere' is not a directory")
    assert not any(runs.iterdir())


BAD = {
    "one load": (("--max-concurrency", "4"), "max_concurrency: '4' is one load"),
    "loads": (("--max-concurrency", "1,x"), "max_concurrency: '1,x' is not allowed; allowed: different numbers"),
    "drafts": (("--num-drafts", "2,2"), "num_drafts: '2,2' is not allowed"),
    "few prompts": (("--max-concurrency", "1,64"), "num_prompts: 3 prompts never keep 64 requests in flight"),
    "strategy": (("-s", "ngrm"), "did you mean 'ngram'"),
    "twice": (("-s", "ngram:k=1", "-s", "ngram"), "'ngram' gives the same arm as 'ngram:k=1'"),
    "typed twice": (("-s", "ngram", "-s", "ngram"), "'ngram' is given twice"),
    "spelled out": (("-s", "ngram:graph=none", "-s", "ngram"), "'ngram' gives the same arm as 'ngram:graph=none'"),
    "default": (("-s", "ngram:k=4", "-s", "ngram:k=4,max_n=5"), "k=4,max_n=5' gives the same arm as 'ngram:k=4'"),
    "of run": (("--num-repeats", 0), "num_repeats: 0 is not allowed"),
    "head": (("--head", "random"), "head: 'random' has no effect"),
    "accuracy": (("--accuracy", "gsm8k"), "accuracy: random weights"),
    "resume": (("--resume", "nowhere"), "resume: a sweep resumes with its own options; drop --dataset-name, --dtype"),
    "dry resume": (("--dry-run", "--resume", "nowhere"), "own options; drop --dataset-name, --dry-run"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(cli, toy_sweep, runs, case):
    words, message = BAD[case]
    result = cli(*toy_sweep, "-s", "no-spec", "--max-concurrency", "1,2", *words)
    assert result.exit_code == 2 and message in result.stderr.splitlines()[-1], result.output
    assert not runs.exists()


def test_a_strategy_that_only_the_runs_engine_has(cli, toy_sweep):
    words = "--engine openai --base-url http://127.0.0.1:9/v1 -s as-served --max-concurrency 1,2 --dry-run".split()
    result = cli(*toy_sweep, *words)
    assert result.exit_code == 0 and "as-served " in result.stdout, result.output


def test_without_the_machines_limits_there_is_no_ideal(cli, toy_sweep, monkeypatch):
    def fails(device, dtype):
        raise RuntimeError("no memory for the probe")

    monkeypatch.setattr(sweep_experiment, "measure_machine", fails)
    result = cli(*toy_sweep, *GRID)
    assert result.exit_code == 0 and "no ideal speed-ups: the machine's limits" in result.stderr
    assert "Ideal" not in result.stdout
