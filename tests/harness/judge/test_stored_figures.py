"""Figures that a run stored are trusted only as long as they are those that it stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_samples import begun, chain_block

from specbench.harness.judge.stored import read_run
from specbench.harness.metrics.run_results import results, results_of
from specbench.harness.store.run_directory import RunDirectory


@pytest.fixture
def stored(tmp_path) -> Path:
    run = RunDirectory.create(tmp_path, "test", begun("no-spec"))
    run.append("no-spec", 0, **chain_block([0, 0], k=0))
    run.finish(results(run.frames()))
    return run.path


def change(run: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    raw = json.loads((run / "run.json").read_text())
    edit(raw)
    (run / "run.json").write_text(json.dumps(raw))


def values(raw: dict[str, Any]) -> dict[str, Any]:
    return raw["results"]["blocks"][0]["figures"]["values"]


def test_figures_that_are_not_those_stored_are_refused(stored):
    change(stored, lambda raw: values(raw).update({"tpot_ms.mean": 0.001}))
    with pytest.raises(ValueError, match=r"run.json: results: .*changed.*set results to null"):
        read_run(stored)
    change(stored, lambda raw: raw.update(results=None))
    run = RunDirectory.open(stored)
    assert results_of(run) == results(run.frames()), "the advice helps"


def test_a_run_of_before_the_digest_is_read(stored):
    change(stored, lambda raw: raw.pop("results_sha256"))
    assert read_run(stored).figures["no-spec", 0]["tpot_ms.mean"] is not None


@pytest.mark.parametrize("name", ["num_failed_requests", "tpot_ms.mean"])
def test_a_missing_figure_is_named(stored, name):
    change(stored, lambda raw: (raw.pop("results_sha256"), values(raw).pop(name)))
    with pytest.raises(ValueError, match=f"{stored.name}.*no-spec, repeat 1: {name} is missing.*set results to null"):
        read_run(stored)
