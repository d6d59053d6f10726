"""The tables and the picture of a real model with a trained head are those of the stored repeats."""

from __future__ import annotations

import json
import re
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


def _cells(name: str, load: str) -> dict[str, str]:
    """The cells of both tables, by their column."""
    arms = LOADS[load]["arms"]
    arm, own = arms[name], arms[f"{name.partition(',')[0]}, no speculation"]
    tps, change, length, same = (
        arm["tps"], arm["tpot_change_percent"], arm["acceptance_length"], arm["same_output_percent"]
    )  # fmt: skip
    factors = [1 / (1 + percent / 100) for percent in change or ()]
    by_set, middle = arm["acceptance_length_by_data_set"], statistics.median(tps)
    return {
        "arm": name,
        "tps": f"{middle:,.0f}",
        "spread": f"±{50 * (max(tps) - min(tps)) / middle:.1f}%",
        "n": f"{len(tps)}",
        "tpot": f"{arm['tpot_ms']:.3f}",
        "against vLLM": f"{factors[0]:.2f}x [{factors[2]:.2f}, {factors[1]:.2f}]" if factors else "baseline",
        "against own": "-" if arm is own else f"{middle / statistics.median(own['tps']):.2f}x",
        "length": f"{length[0]:.2f} [{length[1]:.2f}, {length[2]:.2f}]" if length else "-",
        "by set": " / ".join(f"{by_set[name]:.2f}" for name in SETS) if by_set else "-",
        "same": "-" if same is None else f"{same}%",
    }


SHORT = "| {arm} | {tps} {spread} | {tpot} | {against vLLM} | {against own} | {length} | {same} |"
LONG = "| {arm} | {tps} | {spread} (n={n}) | {tpot} | {against vLLM} | {against own} | {length} | {by set} | {same} |"


def _rows(form: str, load: str) -> str:
    return "\n".join(form.format(**_cells(name, load)) for name in LOADS[load]["arms"])


@pytest.mark.parametrize("load", LOADS)
def test_tables(load):
    assert _rows(LONG, load) in (BENCHMARKS / "strategies.md").read_text(encoding="utf-8")
    report = (BENCHMARKS / "results" / f"qwen-coder-b{load}-h200.md").read_text(encoding="utf-8")
    for name, arm in LOADS[load]["arms"].items():
        assert f"| {name} | {arm['engine']} | {_four_digits(statistics.median(arm['tps']))} |" in report
        if arm["same_output_percent"] is not None:
            assert re.search(rf"^\| {re.escape(name)} \|.* \| {arm['same_output_percent']}% \|$", report, re.MULTILINE)


def test_the_table_of_the_front_page():
    assert _rows(SHORT, "1") in (ROOT / "README.md").read_text(encoding="utf-8")


def _four_digits(tps: float) -> str:
    return f"{tps:.1f}".removesuffix(".0") if tps < 1000 else f"{tps:,.0f}"


def test_acceptance_of_both_engines_is_within_three_percent():
    for arms in (load["arms"] for load in LOADS.values()):
        theirs, ours = (arms[f"{engine}, EAGLE K=4"]["acceptance_length"][0] for engine in ("vLLM", "specbench"))
        assert abs(ours / theirs - 1) < 0.013


def test_picture():
    assert FILE.read_text(encoding="utf-8") == picture(), "run `PYTHONPATH=.ns python benchmarks/qwen_picture.py`"
