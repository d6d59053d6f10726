"""`specbench pool`: runs of one repeat each as one run."""

from __future__ import annotations

import json
import shutil
from functools import reduce

import pytest
from cli.conftest import assert_refused

from specbench.harness.experiments import pool as experiment
from specbench.harness.store.block_records import read_records
from specbench.harness.store.run_directory import RunDirectory

ARMS = ("no-spec", "ngram:k=2")
WORDS = [word for arm in ARMS for word in ("-s", arm)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Three runs, measured by the first test that needs them: 2 s."""
    return tmp_path_factory.mktemp("measured") / "runs"


@pytest.fixture
def three_runs(toy, runs, cli, measured):
    """In the order in which they were measured; copies, which a test may change."""
    if not measured.exists():
        for number in range(3):
            result = cli(*toy, *WORDS, "--label", f"part{number}", "--output-dir", measured)
            assert result.exit_code == 0, result.output
    shutil.copytree(measured, runs)
    return sorted(runs.iterdir(), key=lambda path: path.name.partition("part")[2])


@pytest.fixture
def pool(cli, tmp_path):
    def call(*words):
        return cli("pool", *words, "-o", tmp_path / "pooled")

    return call


@pytest.fixture
def nowhere(tmp_path):
    """Where no refused command may leave anything."""
    return tmp_path / "pooled"


def change(path, name, value):
    """Changes a field of run.json, named with dots."""
    document = json.loads((path / "run.json").read_text())
    *parents, last = name.split(".")
    reduce(lambda part, key: part[int(key) if isinstance(part, list) else key], parents, document)[last] = value
    (path / "run.json").write_text(json.dumps(document))


def only(folder):
    (path,) = folder.iterdir()
    return path


def test_each_run_is_a_repeat_and_no_row_changes(pool, nowhere, three_runs):
    result = pool(*three_runs, "--format", "json")
    assert result.exit_code == 0, result.output
    path = only(nowhere)
    pooled, parts = RunDirectory.open(path), [RunDirectory.open(part) for part in three_runs]
    assert pooled.record.status == "complete" and pooled.record.config.num_repeats == 3
    assert [each.run_id for each in pooled.record.pooled] == [part.record.run_id for part in parts]
    for number, part in enumerate(parts):
        for arm in ARMS:
            assert pooled.columns(arm, number) == part.columns(arm, 0) != pooled.columns(arm, (number + 1) % 3)
            assert read_records(path)[arm, number].run_id == part.record.run_id
    shown = json.loads(result.stdout)
    assert {arm["num_repeats"] for arm in shown["arms"]} == {3}
    assert all(arm["spreads"]["tps"]["min"] < arm["spreads"]["tps"]["max"] for arm in shown["arms"])
    low, high = (shown["arms"][1]["speedup"][f"tpot_ratio_{end}"] for end in ("low", "high"))
    assert low < high, "a single run has no interval"


def test_the_report_names_every_part(cli, pool, nowhere, three_runs):
    change(three_runs[1], "git", {"sha": "ab" * 20, "branch": "main", "dirty": False})
    pool(*three_runs)
    report = cli("show", only(nowhere), "--format", "wide").stdout
    for number, part in enumerate(three_runs, start=1):
        record = RunDirectory.open(part).record
        said = (
            f"pooled: repeat {number}: {part.name}, started {record.started_utc}, specbench {record.git.describe()}: "
        )
        assert said + record.command in report
    assert RunDirectory.open(only(nowhere)).record.git is None, "no commit stands for all of them"


def test_a_run_counts_once(pool, nowhere, three_runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(three_runs[0], copy)
    for again in (three_runs[0], copy):
        assert_refused(pool(three_runs[0], again), nowhere, "runs: ", "it is one measurement")


def test_a_label_that_a_directory_cannot_carry_is_refused(pool, nowhere, three_runs):
    assert_refused(pool(*three_runs, "--label", "größe"), nowhere, "label: 'größe' is not allowed; allowed: 1 to 50")


def test_repeats_of_one_process_are_refused(cli, toy, pool, nowhere, three_runs, runs):
    assert cli(*toy, *WORDS, "--num-repeats", 2, "--label", "two").exit_code == 0
    (two,) = runs.glob("*-two-*")
    assert_refused(pool(three_runs[0], two), nowhere, "has 2 repeats, which are not independent", "--num-repeats 1")


@pytest.mark.parametrize("failed", [ARMS[:1], ARMS])
def test_a_run_without_all_its_blocks_is_refused(pool, nowhere, three_runs, failed):
    RunDirectory.open(three_runs[1]).fail_blocks([(arm, 0) for arm in failed], "out of memory")
    assert_refused(pool(*three_runs), nowhere, f"is not complete (lacks {', '.join(sorted(failed))})", "--resume")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("status", "interrupted", "is not complete (interrupted); finish it"),
        ("purpose.certify_graphs", {"num_rounds": 3}, "without a sweep, an evaluation or graph certificates"),
        ("purpose.sweep", {"sweep_id": "s", "max_concurrency": 1, "num_points": 2}, "without a sweep"),
        ("workload.sha256", None, "does not record its workload"),
    ],
)
def test_what_is_not_one_whole_repeat_is_refused(pool, nowhere, three_runs, name, value, said):
    change(three_runs[1], name, value)
    assert_refused(pool(*three_runs), nowhere, f"runs: {three_runs[1]}", said)


def test_one_run_and_a_pooled_run_are_refused(pool, nowhere, three_runs, tmp_path):
    assert_refused(pool(three_runs[0]), nowhere, "runs: 1 is not allowed", "at least two")
    pool(*three_runs[:2])
    pooled = only(nowhere).rename(tmp_path / "before")
    nowhere.rmdir()
    assert_refused(pool(three_runs[2], pooled), nowhere, "allowed: runs of `specbench run`")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("model.sha256", "ab" * 32, "model sha256: none and abab"),
        ("environment.software.packages.torch", "2.0", "torch: "),
        ("environment.hardware.cpu.model", "Another CPU", "CPU: "),
        ("workload.sha256", "ab" * 32, "prompts sha256: "),
        ("arms.1.config.sync", "multi", "ngram:k=2: sync: "),
    ],
)
def test_other_measurements_are_not_comparable(pool, nowhere, three_runs, name, value, said):
    change(three_runs[1], name, value)
    result = pool(*three_runs)
    assert result.exit_code == 5 and said in result.stderr and not nowhere.exists()
    assert f"{three_runs[0]} and {three_runs[1]} differ in " in result.stderr and "allow-mismatch" not in result.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("--num-prompts", 2), "option num_prompts: 3 and 2"),
        (("--temperature", 1), "option temperature: 0.0 and 1.0"),
        (("-s", "ngram:k=3"), "arms: no-spec, ngram:k=2 and no-spec, ngram:k=2, ngram:k=3"),
    ],
)
def test_other_options_and_arms_are_not_comparable(cli, toy, runs, pool, nowhere, changes, said):
    for label, more in (("one", ()), ("other", changes)):
        assert cli(*toy, *WORDS, *more, "--label", label).exit_code == 0
    result = pool(*runs.glob("*-one-*"), *runs.glob("*-other-*"))
    assert result.exit_code == 5 and said in result.stderr and not nowhere.exists()


def test_an_interrupted_pool_leaves_nothing(pool, nowhere, three_runs, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "add_record", interrupt)
    assert pool(*three_runs).exit_code == 130
    assert list(nowhere.iterdir()) == []


def test_a_pooled_run_is_never_measured_into(cli, pool, nowhere, three_runs):
    pool(*three_runs)
    result = cli("run", "--resume", only(nowhere))
    assert result.exit_code == 2 and "is a pooled run; its repeats come from other runs" in result.stderr


def test_a_history_has_the_parts_and_not_the_whole(cli, pool, nowhere, three_runs, tmp_path):
    pool(*three_runs)
    for path in (*three_runs, only(nowhere)):
        assert cli("history", "add", tmp_path / "history", path).exit_code == 0
    shown = json.loads(cli("history", "show", tmp_path / "history", "--format", "json", "--metric", "tps").stdout)
    assert shown["problems"] == []
    commits = [commit for entry in shown["series"] for commit in entry["series"]["commits"]]
    assert {run_id for commit in commits for run_id in commit["run_ids"]} == {part.name for part in three_runs}
