"""`specbench ab`, with the toy model: a planted slow-down is found, equal sides are not told apart, nothing is lost.

What it refuses: test_ab_refused.py; real processes: test_ab_refs.py.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from specbench.harness import registry
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.experiments.ab_sides import parse_side, side_config
from specbench.harness.experiments.run import ROWS_ALONE
from specbench.harness.run import machine_state
from specbench.harness.run.runner import Arms
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.text import parse_percent
from specbench.strategies.no_spec import NoSpec

SLEEP_S = 0.01  # many times a toy step


class SlowNoSpec(NoSpec):
    name = "slow-no-spec"


@pytest.fixture
def plant(monkeypatch):
    """`plant(sleep)`: strategy `slow-no-spec`, which is no-spec whose decode rounds sleep first."""
    launch = Engine._launch_decode_round
    monkeypatch.setitem(registry.STRATEGIES, "slow-no-spec", "planted:SlowNoSpec")
    lookup = registry.lookup

    def find(table, name, kind):
        return SlowNoSpec if name == "slow-no-spec" else lookup(table, name, kind)

    monkeypatch.setattr(registry, "lookup", find)

    def install(sleep: Callable[[float], None]) -> None:
        def sleepy(engine: Engine) -> None:
            if engine.strategy.name == SlowNoSpec.name:
                sleep(SLEEP_S)
            launch(engine)

        monkeypatch.setattr(Engine, "_launch_decode_round", sleepy)

    return install


def record_of(run: RunDirectory) -> dict:
    return json.loads((run.path / "ab.json").read_text())


def by_name(record: dict) -> dict[str, dict]:
    return {m["metric"]["name"]: m for m in record["metrics"]}


def test_a_planted_slow_down_is_found(cli, small, only_run, plant, clock):
    plant(clock.sleep)
    result = cli("ab", "-A", "no-spec", "-B", "slow-no-spec", "--blocks", 6, "--in-process", *small)
    assert result.exit_code == 1, result.output
    record = record_of(only_run())
    found = by_name(record)
    assert record["verdict"] == "regressed" and not record["is_aa"] and record["num_kept"] == 6
    assert found["step time"]["verdict"] == found["TPOT"]["verdict"] == "regressed"
    assert found["step time"]["b"] - found["step time"]["a"] == pytest.approx(1e3 * SLEEP_S, rel=0.01)
    assert found["tokens per step"]["verdict"] == "equivalent" and found["tokens per step"]["num_pairs"] == 6
    assert record["same_output"]["num_same"] == record["same_output"]["num_pairs"] == 36
    assert "B against A: regressed" in result.stdout and "in ONE process" in result.stdout
    assert (only_run().path / "ab.md").read_text().startswith("## B against A: regressed")


@pytest.mark.timed
def test_a_real_slow_down_is_found(cli, small, only_run, plant):
    plant(time.sleep)
    assert cli("ab", "-A", "no-spec", "-B", "slow-no-spec", "--blocks", 6, "--in-process", *small).exit_code == 1
    step = by_name(record_of(only_run()))["step time"]
    assert step["verdict"] == "regressed" and step["b"] - step["a"] > 0.9 * 1e3 * SLEEP_S


def test_the_other_way_round_it_is_an_improvement(cli, small, only_run, plant, clock, inline):
    plant(clock.sleep)
    result = cli("ab", "-A", "slow-no-spec", "-B", "no-spec", "--blocks", 6, "--format", "json", *small)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == record_of(only_run())
    assert record_of(only_run())["verdict"] == "improved" and len(inline) == 12


def test_equal_sides(cli, small, only_run, clock, inline):
    """A margin above the noise of this clock: the words are tested here, the rates elsewhere."""
    result = cli("ab", "-A", "ngram:k=2", "-B", "ngram:k=2", "--blocks", 6, "--min-effect", "10%", *small)
    assert result.exit_code == 0, result.output
    record = record_of(only_run())
    assert record["is_aa"] and record["verdict"] == "equivalent"
    assert "A/A (both sides are the same code and configuration)" in result.stdout
    assert by_name(record)["tokens per step"]["change"] == 0


def test_a_process_of_a_block_makes_no_reports(cli, toy, only_run, monkeypatch):
    """It leaves the rows."""
    monkeypatch.setenv(ROWS_ALONE, "1")
    result = cli(*toy, "-s", "ngram:k=2")
    assert result.exit_code == 0 and result.stdout == "", result.output
    run = only_run()
    assert run.record.status == "complete" and len(run.frames().requests) == 3
    assert not any((run.path / name).exists() for name in ("report.md", "report.json", "plots"))


@pytest.mark.parametrize("where", ["in-process", "fresh"])
def test_blocks_beside_other_work_are_rejected(cli, small, only_run, clock, monkeypatch, tmp_path, where, request):
    """More than a fifth of them: the whole is invalid, and says why."""
    if where == "fresh":
        request.getfixturevalue("inline")
    (tmp_path / "loadavg").write_text("9999.00 9999.00 9999.00 5/100 1\n")
    monkeypatch.setattr(machine_state, "PROC", tmp_path)
    more = ["--in-process"] if where == "in-process" else []
    result = cli("ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", 6, *more, *small)
    assert result.exit_code == 4 and "invalid" in result.stdout
    record = record_of(only_run())
    assert record["num_rejected"] == 6 and record["verdict"] == "invalid"
    assert f"A: load 9999.0 on {os.cpu_count()} cores" in record["blocks"][0]["reasons"]


def test_the_order_is_the_plan_s_and_is_recorded(cli, small, only_run, inline):
    cli("ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", 3, "--no-verdict", "--order-seed", 5, *small)
    plan = only_run().record.ab.plan
    assert list(inline) == [label for pair in plan.order() for label in pair] and plan.order_seed == 5
    lines = [json.loads(line) for line in (only_run().path / "blocks.jsonl").read_text().splitlines()]
    assert [line["arm"] for line in lines] == list(inline) and {line["position"] for line in lines} == {0, 1}
    assert all(len(line["load_average"]) == 2 and line["wall_s"] > 0 for line in lines)


def test_few_blocks_are_exploratory_and_other_reports_read_the_run(cli, small, only_run, inline):
    result = cli("ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", 2, "--no-verdict", *small)
    assert result.exit_code == 4 and "B against A: exploratory" in result.stdout
    run = only_run()
    assert run.done_blocks() == {(label, n) for label in "AB" for n in range(2)}
    assert run.record.workload.num_prompts == 6 and run.record.model.name == "toy"
    shown = cli("show", run.path)
    rows = [line.split()[0] for line in shown.stdout.splitlines() if line.startswith(("A  ", "B  "))]
    assert shown.exit_code == 0 and rows == ["A", "B"] and "ngram:k=2" in shown.stdout
    assert not (run.path / "children").exists()
    refused = cli("run", "--resume", run.path)
    assert refused.exit_code == 2 and "specbench ab --resume" in refused.stderr


@pytest.mark.parametrize("in_process", [True, False])
def test_ctrl_c_and_resume(cli, small, only_run, inline, monkeypatch, in_process):
    """Interrupted in the second side of block 2: that block is measured anew, both sides of it."""
    words = ["-A", "no-spec", "-B", "ngram:k=2", "--blocks", 3, "--no-verdict", *small]
    if in_process:
        ran = interrupted_blocks(monkeypatch, 4)
        words.append("--in-process")
    else:
        ran = inline
        ran.fail[4] = KeyboardInterrupt()
    result = cli("ab", *words)
    run = only_run()
    assert result.exit_code == 130 and result.stderr.splitlines()[-1].endswith(f"specbench ab --resume {run.path}")
    assert run.record.status == "interrupted" and len(run.done_blocks()) == 3
    before = run.frames().requests
    resumed = cli("ab", "--resume", run.path, "--quiet")
    assert resumed.exit_code == 4, resumed.output
    run = only_run()
    assert run.record.status == "complete" and len(run.done_blocks()) == 6 and len(ran) == 4 + 4
    after = run.frames().requests
    first = [frame[frame["repeat"] == 0].set_index(["arm", "request_id"])["t_last_ns"] for frame in (before, after)]
    assert first[0].equals(first[1].loc[first[0].index]), "whole blocks stay as they are"
    assert [b["measured"] for b in record_of(run)["blocks"]] == [True] * 3
    again = cli("ab", "--resume", run.path)
    assert "nothing to do" in again.stderr and len(ran) == 8 and "exploratory" in again.stdout


def interrupted_blocks(monkeypatch, at: int) -> list[str]:
    """Labels of blocks as they begin; the `at`-th is interrupted."""
    ran: list[str] = []
    measure = Arms.try_block

    def block(arms, arm, repeat):
        ran.append(arm.config.label)
        if len(ran) == at:
            raise KeyboardInterrupt
        return measure(arms, arm, repeat)

    monkeypatch.setattr(Arms, "try_block", block)
    return ran


def test_a_process_that_dies_fails_its_block_only(cli, small, only_run, inline):
    inline.fail[3] = -9
    result = cli("ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", 3, "--no-verdict", *small)
    run = only_run()
    assert result.exit_code == 4 and len(inline) == 6
    ((label, block),) = run.failed_blocks()
    assert (label, block) == (run.record.ab.plan.order()[1][0], 1)
    assert record_of(run)["blocks"][1]["reasons"] == [f"{label}: failed: exit code -9: the GPU is on fire"]
    assert cli("ab", "--resume", run.path, "--quiet").exit_code == 4
    assert only_run().failed_blocks() == {} and len(inline) == 8


def test_a_mismatch_that_was_asked_for_is_said(cli, small, only_run, inline):
    words = ["-A", "no-spec", "-B", "no-spec --max-concurrency 2", "--blocks", 1, "--no-verdict", "--allow-mismatch"]
    result = cli("ab", *small, *words)
    assert "NOT THE SAME on both sides (--allow-mismatch): workload: max concurrency: 1 and 2" in result.stdout
    assert record_of(only_run())["mismatches"] == ["workload: max concurrency: 1 and 2"]


def test_strict(cli, small, only_run, clock, inline):
    """Nothing can be told of changes far below the noise."""
    words = ["-A", "ngram:k=2", "-B", "ngram:k=2", "--blocks", 6, "--min-effect", "0.001%", *small]
    assert cli("ab", *words, "--strict").exit_code == 3
    assert record_of(only_run())["verdict"] == "inconclusive"


def test_a_side_s_configuration_is_that_of_the_run(cli, toy, only_run):
    """Nothing that `run` would measure is lost on the way to a side."""
    words = [*toy[1:], "-s", "eagle:k=2,head=random", "--temperature", "0.5", "--stop-token-id", "3", "--sync", "multi"]
    words += ["--acceptance", "synthetic:1.5", "--seed", "9", "--burstiness", "2", "--request-rate", "50"]
    assert cli("run", *words, "--quiet").exit_code == 0
    stored = only_run().record.config
    words = [w for i, w in enumerate(words) if w not in ("--num-repeats", "--output-dir")]
    words = [w for w in words if w not in ("1", str(only_run().path.parent))]
    made = side_config(parse_side("A", "", None, words))
    (arm,), (own,) = stored.arms, made.arms
    assert made == replace(stored, arms=made.arms)
    assert (own.label, own.strategy, own.options, own.engine) == ("A", arm.strategy, arm.options, arm.engine)


def test_sides_as_typed():
    common = ["--num-prompts", "4"]
    side = parse_side("B", "ref:v1.0 eagle:k=4 --sync none", None, common)
    assert side.words == ("--num-prompts", "4", "-s", "eagle:k=4", "--sync", "none") and side.ref == "v1.0"
    assert parse_side("A", "--sync 'none'", "main", []).words == ("--sync", "none")
    assert parse_side("A", "", None, common).words == tuple(common)


@pytest.mark.parametrize(("text", "value"), [("1%", 0.01), (" 0.5 % ", 0.005), ("0.02", 0.02), ("0%", 0.0)])
def test_percentages(text, value):
    assert parse_percent("min_effect", text) == pytest.approx(value)


def test_a_checkout_that_cannot_be_watched_is_said(cli, small, only_run, inline, monkeypatch):
    monkeypatch.setattr("specbench.harness.experiments.ab_fresh.code_state", lambda root: None)
    cli("ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", 1, "--no-verdict", *small)
    assert "local edits of the code between blocks (no git checkout)" in record_of(only_run())["unchecked"]
