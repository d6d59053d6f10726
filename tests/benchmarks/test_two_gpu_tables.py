"""The tables of two GPUs in benchmarks/README.md are those of the stored repeats, and `auto` is the fastest of them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from specbench.harness.engines.native.models.all_reduce import best
from specbench.harness.roofline.ideal import STATED_SUMS

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
README = (BENCHMARKS / "README.md").read_text(encoding="utf-8").splitlines()
METHODS = ("nccl", "one-shot", "two-shot", "fused")
MEASURED = [f"{method} {form}" for form in ("engine", "norm") for method in METHODS]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_all_reduce():
    kept = json.loads((BENCHMARKS / "results" / "all-reduce-h200-x2.json").read_text())
    rows = [_cells(line) for line in README if line.startswith("| ") and " KiB |" in line]
    assert len(rows) == len(kept["repeats_us"]) == 11
    for (size, *figures, auto), (num_bytes, repeats) in zip(rows, kept["repeats_us"].items(), strict=True):
        medians = {name: statistics.median(repeats[name]) for name in MEASURED}
        assert size == f"{int(num_bytes) >> 10:,} KiB" and figures == [f"{medians[name]:.1f}" for name in MEASURED]
        assert auto == best(int(num_bytes), 2) == min(METHODS, key=lambda method: medians[f"{method} norm"])


def test_no_sum_is_faster_than_the_rooflines():
    kept = json.loads((BENCHMARKS / "results" / "all-reduce-h200-x2.json").read_text())
    latency_s, bytes_per_s = STATED_SUMS[kept["device"], kept["num_ranks"]]
    for num_bytes, repeats in kept["repeats_us"].items():
        fastest_us = min(map(statistics.median, repeats.values()))
        assert 0.75 < 1e6 * (latency_s + int(num_bytes) / bytes_per_s) / fastest_us <= 1


def test_race():
    kept = json.loads((BENCHMARKS / "results" / "decode-race-h200-x2.json").read_text())
    start = README.index("### More cells, and two GPUs")
    rows = [_cells(line) for line in README[start : start + 45] if line.startswith(("| llama", "| qwen"))]
    for row, cell in zip(rows, kept, strict=True):
        ratios = [ours / theirs for ours, theirs in zip(cell["ours_tps"], cell["vllm_tps"], strict=True)]
        assert row[:4] == [cell["shape"], str(cell["k"]), str(cell["batch"]), f"{cell['num_prompt']:,}"]
        assert row[4] == f"{statistics.median(cell['ours_tps']):,.0f}"
        assert row[6] == f"{statistics.median(cell['vllm_tps']):,.0f}"
        assert row[8] == f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
        assert row[9] == str(len(ratios))
