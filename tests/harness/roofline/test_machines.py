"""A stored run against the machine that it was measured on: a sweep's own limits, stated ones, or none, with why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from roofline_samples import BASE, CHAIN, roofline_run

from specbench.harness.roofline.ideal import LIMITS
from specbench.harness.roofline.machines import STATED, roofline_of
from specbench.harness.store.environment import Cpu, Environment, Gpu, Hardware
from specbench.harness.store.inputs_record import ModelRecord
from specbench.harness.store.roofline_record import MEASURED
from specbench.harness.store.run_directory import RunDirectory

STORED = Path(__file__).parents[3] / "benchmarks" / "runs" / "h200"
(SWEEP,) = STORED.glob("*-crossover-*")
H200 = Environment(hardware=Hardware(gpus=(Gpu(name="NVIDIA H200"),)))
CPU = Environment(hardware=Hardware(cpu=Cpu(model="AMD EPYC", logical_cores=2)))


def placed(run: RunDirectory, environment: Environment, device: str, dtype: str = "bfloat16") -> RunDirectory:
    run.put(replace(run.record, environment=environment, model=ModelRecord(dtype=dtype, device=device)))
    return run


def test_a_stored_run_of_an_h200_by_the_limits_that_its_sweep_measured(monkeypatch):
    at = {}
    monkeypatch.chdir(SWEEP / "runs")  # from where the way to the sweep is not in the paths
    for path in sorted(Path().iterdir()):
        run = RunDirectory.open(path)
        found = roofline_of(run, run.frames())
        assert found.machine is not None and found.machine.how == MEASURED and not found.unknown
        assert [arm.label for arm in found.arms] == [arm.label for arm in run.record.arms]
        for arm in found.arms:
            assert sum(arm.limits_ms.values()) == pytest.approx(arm.ideal_round_ms) and set(arm.limits_ms) <= {*LIMITS}
            assert arm.efficiency is not None and 0.5 < arm.efficiency < 0.8
        point = run.record.purpose.sweep
        assert point is not None
        at[point.max_concurrency] = found.arms[0]
    # One row a request: weights are what it reads, until there are more rows than fit beside reading them (176).
    assert {load: arm.limit for load, arm in at.items()} == {
        32: "reading weights",
        96: "reading weights",
        256: "matrix products",
    }


def test_stated_limits_are_of_one_kind_of_gpu_and_one_dtype(tmp_path):
    run = roofline_run(tmp_path)
    on_gpu = placed(run, H200, "cuda")
    found = roofline_of(on_gpu, on_gpu.frames())
    assert found.machine == STATED[0] and {arm.label for arm in found.arms} > {BASE, CHAIN}
    for other in (
        placed(run, H200, "cuda", "float32"),
        placed(run, H200, "cpu"),
        placed(run, Environment(hardware=Hardware(gpus=(Gpu(name="NVIDIA H100"),))), "cuda"),
    ):
        assert roofline_of(other, other.frames()).machine is None


def test_what_is_not_known_is_said(tmp_path):
    run = placed(roofline_run(tmp_path), CPU, "cpu")
    found = roofline_of(run, run.frames())
    assert not found.arms
    assert found.unknown == (
        "the limits of AMD EPYC (2 logical cores) in bfloat16 are not known; a sweep measures them"
    )
    run.put(replace(run.record, forwards={}))
    assert roofline_of(run, run.frames()).unknown.startswith("the forward passes of its arms are not recorded")
