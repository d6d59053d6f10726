"""Runs and sweeps that an older version stored: they are read as today's, and their figures are what it derived."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from specbench.harness.metrics.run_results import results_of
from specbench.harness.store.migrate import OLD_RUN_SCHEMA
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RUN_SCHEMA
from specbench.harness.store.sweep_directory import SweepDirectory

STORED = Path(__file__).resolve().parents[3] / "benchmarks" / "runs"
RUNS = sorted(p.parent for p in STORED.rglob("run.json") if json.loads(p.read_text())["schema"] == OLD_RUN_SCHEMA)
(SWEEP,) = (path.parent for path in STORED.rglob("sweep.json"))


def old(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_what_a_run_was_is_kept(run):
    raw, before = old(run), (run / "run.json").read_bytes()
    record = RunDirectory.open(run).record
    assert record.schema == RUN_SCHEMA and (run / "run.json").read_bytes() == before
    assert (record.run_id, record.status, record.command) == (raw["run_id"], raw["status"], raw["command"])
    assert record.git is not None and record.git.sha == raw["git"]["sha"]
    assert record.environment.hardware is not None and record.environment.hardware.cpu is not None
    assert record.environment.hardware.cpu.model == raw["environment"]["hardware"]["cpu"]["model"]
    assert record.workload is not None and record.workload.sha256 == raw["workload"]["sha256"]
    assert [arm.label for arm in record.arms] == [arm["label"] for arm in raw["arms"]]
    assert [arm.warmup for arm in record.arms] == [arm["config"]["warmup"] for arm in raw["arms"]]
    assert [arm.config.num_drafts for arm in record.arms] == [arm["config"]["num_drafts"] for arm in raw["arms"]]
    assert record.config is not None and record.config.request_rate == math.inf
    assert record.config.mixed_chunk_size == record.config.max_num_batched_tokens, "there was no limit then"
    assert RunDirectory.open(run).config_to_go_on() == record.config
    assert record.config.arms[-1].options == raw["config"]["arms"][-1]["options"]
    assert list(record.files) == list(raw["files"])
    assert set(record.forwards) == set(raw.get("forwards", {}))


def test_an_experiment_keeps_its_plan_and_its_sides():
    experiments = [run for run in RUNS if "ab" in old(run)]
    assert len(experiments) == 7 and len(RUNS) == 10
    for run in experiments:
        raw, stored = old(run)["ab"], RunDirectory.open(run).record.ab
        assert stored is not None and stored.names == raw["names"] and stored.is_aa == raw["is_aa"]
        assert ["".join(pair) for pair in stored.plan.order()] == raw["plan"]["order"]
        assert set(stored.sides) == set(raw.get("first_manifests", {}))
        for label, side in stored.sides.items():
            told = raw["first_manifests"][label]
            assert side.git is not None and (side.git.sha, side.command) == (told["git"]["sha"], told["command"])


def test_a_sweep_keeps_its_loads_and_its_runs():
    raw = json.loads((SWEEP / "sweep.json").read_text())
    sweep = SweepDirectory.open(SWEEP)
    assert list(sweep.loads) == raw["loads"] == list(sweep.runs())
    assert [(arm.label, arm.refused) for arm in sweep.record.arms] == [(a["label"], a["refused"]) for a in raw["arms"]]
    assert sweep.record.machine is not None and sweep.record.machine.device == raw["machine"]["device"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_figures_are_those_that_were_stored(run):
    raw, found = old(run)["results"], results_of(RunDirectory.open(run))
    blocks = found.by_block()
    assert len(blocks) == len(raw["blocks"])
    num_compared = 0
    for block in raw["blocks"]:
        values = blocks[block["arm"], block["repeat"]].values
        for name, value in leaves(block):
            if name not in ("arm", "repeat", "accounting.source"):
                assert values[name] == pytest.approx(value, nan_ok=True), name
                num_compared += 1
    assert num_compared >= 50 * len(blocks)
    for arm, summary in zip(raw["arms"], found.arms, strict=True):
        known = [name for name in summary.spreads if name in arm["spreads"]]  # others are defined since
        assert arm["label"] == summary.label and known == list(arm["spreads"])
        for name, spread in arm["spreads"].items():
            assert summary.spreads[name].median == pytest.approx(spread["median"]), name


def leaves(table: dict, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Single figures by dotted name; not those by position."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        elif not isinstance(value, list) and not key == "method":
            yield f"{prefix}{key}", value
