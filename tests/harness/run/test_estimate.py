"""How long a command will take, by stored runs of the same arms."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ab_samples import experiment
from site_samples import finished_run

from specbench.harness.run import estimate
from specbench.harness.run.estimate import UNKNOWN, process_estimate, sweep_estimate, token_estimate
from specbench.harness.store.block_records import add_record, read_records
from specbench.harness.store.run_directory import RunDirectory


@pytest.fixture(autouse=True)
def same_machine(monkeypatch):
    monkeypatch.setattr(estimate, "collect_environment", lambda: SimpleNamespace(describe_hardware=lambda: HARDWARE))


HARDWARE = "Test CPU (4 logical cores)"


def prepared(model="toy-model", concurrency=1, request_rate=math.inf):
    described = SimpleNamespace(name=model, dtype=None)
    config = SimpleNamespace(max_concurrency=concurrency, request_rate=request_rate)
    return SimpleNamespace(model=SimpleNamespace(described=described), config=config)


def test_tokens_at_the_speed_of_a_stored_run(tmp_path):
    stored = RunDirectory.open(finished_run(tmp_path, started="2026-01-01T00:00:00Z"))
    tps = {arm.label: arm.median("tps") for arm in stored.record.results.arms}
    tokens = {"no-spec": 10_000, "eagle:k=4": 20_000}
    text = token_estimate(prepared(), tmp_path / "new", tokens)
    seconds = sum(num / tps[label] for label, num in tokens.items())
    assert 90 < seconds < 5400 and f"at most about {seconds / 60:.0f} min for up to 30,000 tokens" in text


def test_all_points_of_a_sweep_at_the_speed_of_stored_runs_at_their_loads(tmp_path):
    arms = ("no-spec", "eagle:k=4")
    seconds = {}
    for load in (1, 8):
        stored = RunDirectory.open(finished_run(tmp_path, started="2026-01-01T00:00:00Z", concurrency=load))
        tps = {arm.label: arm.median("tps") for arm in stored.record.results.arms}
        seconds[load] = sum(3 * 2 * 5_000 / tps[label] for label in arms)
    run = prepared()
    run.config.num_repeats = 3
    run.workload = SimpleNamespace(prompts=[SimpleNamespace(max_tokens=5_000)] * 2)
    run.arms = [SimpleNamespace(config=SimpleNamespace(label=label)) for label in arms]
    minutes = round(sum(seconds.values()) / 60)
    both = sweep_estimate(run, tmp_path / "new", [1, 8])
    assert both.startswith(f"estimated time of all 2 remaining points: at most about {minutes} min, at the speed")
    some = sweep_estimate(run, tmp_path / "new", [1, 8, 16])
    assert f"all 3 remaining points: at most about {minutes} min for 2 of them, - for concurrency 16 (no stored" in some
    assert "all 1 remaining points: - (no stored run of these arms" in sweep_estimate(run, tmp_path / "new", [16])


@pytest.mark.parametrize(
    ("run", "tokens"),
    [
        (prepared(model="other"), {"no-spec": 10}),
        (prepared(concurrency=8), {"no-spec": 10}),
        (prepared(request_rate=0.1), {"no-spec": 10}),
        (prepared(), {"no-spec": 10, "ngram": 10}),
        (prepared(), {}),
    ],
)
def test_a_dash_where_nothing_like_it_is_stored(tmp_path, run, tokens):
    finished_run(tmp_path, started="2026-01-01T00:00:00Z")
    assert token_estimate(run, tmp_path / "new", tokens) == UNKNOWN


def test_a_dash_on_another_machine(tmp_path, monkeypatch):
    finished_run(tmp_path, started="2026-01-01T00:00:00Z")
    other = SimpleNamespace(describe_hardware=lambda: "another")
    monkeypatch.setattr(estimate, "collect_environment", lambda: other)
    assert token_estimate(prepared(), tmp_path / "new", {"no-spec": 10}) == UNKNOWN


def test_processes_take_what_those_of_a_stored_experiment_took(tmp_path):
    stored, new = experiment(tmp_path, num_blocks=2), experiment(tmp_path / "new", num_blocks=2)
    plan = stored.record.ab.plan
    assert process_estimate(plan, RunDirectory.open(new.path), "AB") == UNKNOWN
    for seen in read_records(stored.path).values():
        add_record(stored.path, replace(seen, wall_s={"A": 20.0, "B": 40.0}[seen.arm]))
    beside = RunDirectory.create(tmp_path, "new", new.record)
    found = re.search("about (.*), as", process_estimate(plan, beside, "ABBA"))
    assert found and found[1] == "2 min"


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), ValueError("damaged")])
@pytest.mark.parametrize("reader", ["read_run_record", "read_records"])
def test_a_run_that_cannot_be_read_is_passed_over(tmp_path, monkeypatch, reader, error):
    """Another user's, in a shared folder: for an estimate, a measurement ended as it began."""

    def refuse(*_):
        raise error

    stored = experiment(tmp_path, num_blocks=2)
    beside = RunDirectory.create(tmp_path, "new", stored.record)
    monkeypatch.setattr(estimate, reader, refuse)
    assert process_estimate(stored.record.ab.plan, RunDirectory.open(beside.path), "AB") == UNKNOWN
    assert token_estimate(prepared(), beside.path, {"no-spec": 10}) == UNKNOWN
