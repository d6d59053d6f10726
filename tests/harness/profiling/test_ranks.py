"""The rounds of several ranks: each rank's own trace, and what they say side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from profiling.synthetic import Synth, write_kineto
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.ranks import FILE, rank_profiles, rank_trace
from specbench.harness.profiling.rules import PhaseRules

ROOT = Path(__file__).resolve().parents[3]
_SUMS = ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "one_shot_all_reduce_kernel", "ncclDevKernel_AllGather_RING_LL")
TOY = (
    "profile run -s eagle:k=2,head=random --load-format dummy --model toy --dtype float32 --dataset-name random "
    "--random-input-len 12 --num-prompts 3 --warmup-max-s 0.02 --max-model-len 256 --max-concurrency 2 --rounds 3 "
    "--no-twin --device cpu --tensor-parallel-size 2"
).split()


def of_rank(path, own_ns: int, sum_ns: int):
    """Three rounds of a product and three kernels that wait for the other rank."""
    s = Synth()
    for number in range(3):
        with s.range(f"specbench:step {number}"), s.range("specbench:verify"):
            s.graph([("gemm", own_ns), *((name, sum_ns) for name in _SUMS)])
    return analyse_trace(write_kineto(path, s), rules=PhaseRules.shipped())


def test_the_rank_that_waits_least_is_the_slowest(tmp_path):
    found = rank_profiles([of_rank(tmp_path / "a.json", 40_000, 20_000), of_rank(tmp_path / "b.json", 70_000, 10_000)])
    first, second = found.ranks
    assert (first.sums, first.sums_ns, first.own_ns) == pytest.approx((3, 60_000, 40_000))
    assert (second.sums, second.sums_ns, second.own_ns) == pytest.approx((3, 30_000, 70_000))
    assert first.graph_launches == 1 and first.gpu_busy_ns == pytest.approx(100_000)
    assert (found.slowest, found.skew_ns) == (1, pytest.approx(30_000))
    assert found.lines()[2] == "rank 1 is the slowest, by 30.0 us of own work"
    found.write(tmp_path)
    assert (tmp_path / FILE).is_file()


def test_every_rank_leaves_its_trace(tmp_path, monkeypatch):
    """On a CPU, where a trace says less than the engine's own clock: no profile, both traces."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / ".ns"))
    result = CliRunner().invoke(app, [*TOY, "--output-dir", str(tmp_path)], prog_name="specbench")
    assert result.exit_code == 0, result.output
    (trace,) = tmp_path.glob("*/profile/*/trace.json.gz")
    other = rank_trace(trace, 1)
    assert other.stat().st_size > 1000 and "verify" in result.stdout
