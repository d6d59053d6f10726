"""The tables and the picture of a real model with a trained head are those of the stored repeats."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from qwen_picture import FILE, KEPT, picture  # noqa: E402

SETS = ("humaneval", "mt-bench", "gsm8k")
LOADS = json.loads(KEPT.read_text(encoding="utf-8"))["loads"]


def _row(name: str, arm: dict) -> str:
    tps, change, length = arm["tps"], arm["tpot_change_percent"], arm["acceptance_length"]
    spread = 50 * (max(tps) - min(tps)) / statistics.median(tps)
    factors = [1 / (1 + percent / 100) for percent in change or ()]
    by_set = arm["acceptance_length_by_data_set"]
    cells = [
        name,
        f"{statistics.median(tps):,.0f}",
        f"±{spread:.1f}% (n={len(tps)})",
        f"{arm['tpot_ms']:.3f}",
        f"{factors[0]:.2f}x [{factors[2]:.2f}, {factors[1]:.2f}]" if factors else "baseline",
        f"{length[0]:.2f} [{length[1]:.2f}, {length[2]:.2f}]" if length else "-",
        " / ".join(f"{by_set[name]:.2f}" for name in SETS) if by_set else "-",
    ]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("load", LOADS)
def test_tables(load):
    rows = "\n".join(_row(name, arm) for name, arm in LOADS[load]["arms"].items())
    assert rows in (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert load != "1" or rows in (ROOT / "README.md").read_text(encoding="utf-8")
    report = (BENCHMARKS / "results" / f"qwen-coder-b{load}-h200.md").read_text(encoding="utf-8")
    for name, arm in LOADS[load]["arms"].items():
        assert f"| {name} | {arm['engine']} | {_four_digits(statistics.median(arm['tps']))} |" in report


def _four_digits(tps: float) -> str:
    return f"{tps:.1f}".removesuffix(".0") if tps < 1000 else f"{tps:,.0f}"


def test_acceptance_of_both_engines_is_within_three_percent():
    for arms in (load["arms"] for load in LOADS.values()):
        theirs, ours = (arms[f"{engine}, EAGLE K=4"]["acceptance_length"][0] for engine in ("vLLM", "specbench"))
        assert abs(ours / theirs - 1) < 0.013


def test_picture():
    assert FILE.read_text(encoding="utf-8") == picture(), "run `PYTHONPATH=.ns python benchmarks/qwen_picture.py`"
