"""`specbench pool`: the repeats of several runs as one run."""

from __future__ import annotations

import json
import shutil

import pytest
from cli.conftest import assert_refused

from specbench.harness.store.block_records import read_records
from specbench.harness.store.run_directory import RunDirectory

ARMS = ("-s", "no-spec", "-s", "ngram:k=2")


def directories(folder):
    return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)


@pytest.fixture
def two_runs(toy, runs, cli):
    """Runs of one and of two repeats."""
    for repeats in (1, 2):
        result = cli(*toy, *ARMS, "--num-repeats", repeats, "--label", f"part{repeats}")
        assert result.exit_code == 0, result.output
    return directories(runs)


def test_the_repeats_follow_each_other_and_no_row_changes(cli, two_runs, tmp_path):
    result = cli("pool", *two_runs, "-o", tmp_path / "pooled", "--format", "json")
    assert result.exit_code == 0, result.output
    (path,) = (tmp_path / "pooled").iterdir()
    pooled, parts = RunDirectory.open(path), [RunDirectory.open(part) for part in two_runs]
    assert pooled.record.status == "complete" and pooled.record.config.num_repeats == 3
    assert [(each.run_id, each.num_repeats) for each in pooled.record.pooled] == [
        (parts[0].record.run_id, 1),
        (parts[1].record.run_id, 2),
    ]
    for arm in ("no-spec", "ngram:k=2"):
        for number, (part, repeat) in enumerate([(0, 0), (1, 0), (1, 1)]):
            assert pooled.columns(arm, number) == parts[part].columns(arm, repeat)
            assert read_records(path)[arm, number].run_id == parts[part].record.run_id
    shown = json.loads(result.stdout)
    assert {arm["num_repeats"] for arm in shown["arms"]} == {3}
    assert all(arm["spreads"]["tps"]["min"] < arm["spreads"]["tps"]["max"] for arm in shown["arms"])


def test_the_report_names_every_part(cli, two_runs, tmp_path):
    cli("pool", *two_runs, "-o", tmp_path / "pooled")
    (path,) = (tmp_path / "pooled").iterdir()
    report = cli("show", path, "--format", "wide").stdout
    for words, part in (("repeat 1", two_runs[0]), ("repeats 2 to 3", two_runs[1])):
        (line,) = [line for line in report.splitlines() if f"pooled: {words}: {part.name}" in line]
        record = RunDirectory.open(part).record
        assert f"started {record.started_utc}, specbench {record.git.describe()}: {record.command}" in line


def test_a_run_counts_once(cli, two_runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(two_runs[0], copy)
    for again in (two_runs[0], copy):
        refused = cli("pool", two_runs[0], again, "-o", tmp_path / "none")
        assert_refused(refused, tmp_path / "none", "runs: ", "its repeats are not new measurements")


def test_what_cannot_be_pooled_is_refused(cli, two_runs, toy, runs, tmp_path):
    nowhere = tmp_path / "none"
    assert_refused(cli("pool", two_runs[0], "-o", nowhere), nowhere, "runs: 1 is not allowed", "at least two")
    cli("pool", *two_runs, "-o", tmp_path / "pooled")
    (pooled,) = (tmp_path / "pooled").iterdir()
    assert_refused(
        cli("pool", two_runs[0], pooled, "-o", nowhere), nowhere, "runs: ", "allowed: runs of `specbench run`"
    )
    document = json.loads((two_runs[1] / "run.json").read_text())
    (two_runs[1] / "run.json").write_text(json.dumps({**document, "status": "interrupted"}))
    assert_refused(cli("pool", *two_runs, "-o", nowhere), nowhere, "is interrupted", "specbench run --resume")


def test_a_failed_block_is_refused(cli, two_runs, tmp_path):
    directory = RunDirectory.open(two_runs[1])
    directory.fail_blocks([("ngram:k=2", 1)], "out of memory")
    refused = cli("pool", *two_runs, "-o", tmp_path / "none")
    assert_refused(refused, tmp_path / "none", "lacks blocks (ngram:k=2, repeat 2)", "--resume")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("--num-prompts", 2), "option: num_prompts: 3 and 2"),
        (("--temperature", 1), "option: temperature: 0.0 and 1.0"),
        (("-s", "ngram:k=3"), "differ in arms"),
    ],
)
def test_other_measurements_are_not_comparable(cli, toy, runs, tmp_path, changes, said):
    for more in ((), changes):
        assert cli(*toy, *ARMS, *more).exit_code == 0
    result = cli("pool", *directories(runs), "-o", tmp_path / "none")
    assert result.exit_code == 5 and said in result.stderr and not (tmp_path / "none").exists()
    assert "Traceback" not in result.output


def test_other_hardware_is_not_comparable(cli, two_runs, tmp_path):
    file = two_runs[1] / "run.json"
    document = json.loads(file.read_text())
    document["environment"]["hardware"]["cpu"]["model"] = "Another CPU"
    file.write_text(json.dumps(document))
    result = cli("pool", *two_runs, "-o", tmp_path / "none")
    assert result.exit_code == 5 and "hardware: CPU: " in result.stderr and "Another CPU" in result.stderr
