"""The tables of two GPUs in benchmarks/README.md are those of the stored repeats, and `auto` is the fastest of them."""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path

from specbench.harness.engines.native.models.all_reduce import best
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.roofline.ideal import STATED_SUMS, pass_parts_s
from specbench.harness.roofline.machines import STATED
from specbench.harness.roofline.shape import model_shape

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from decode_race import spread  # noqa: E402

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


def test_no_sum_is_faster_than_the_roofline_assumes():
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
        assert [row[5], row[7]] == [f"{spread(cell[side]):.1%}" for side in ("ours_tps", "vllm_tps")]
        assert row[9] == str(len(ratios))
        assert row[10] == cell["check"].replace(" identical, ", " / ").replace(" diverge at a near-tie", "")


def ideal_tps(name: str, batch: int) -> float:
    """Of decoding without speculation over two ranks, with the keys of the race's middle: 128 + 64 tokens."""
    (machine,), config = STATED, SHAPES[name].config
    num_sums = 2 * config.num_layers
    whole = model_shape(config.split(2), 2)
    shape = replace(
        whole,
        num_kernels=whole.num_kernels - num_sums,
        head_params=whole.head_params // 2,
        num_ranks=2,
        num_sums=num_sums + 1,
        sum_bytes=2 * config.hidden_size,
    )
    return batch / sum(pass_parts_s(machine, shape, batch=batch, rows=1, context=192, head_rows=1).values())


def test_percent_of_roofline():
    results = BENCHMARKS / "results"
    race = json.loads((results / "decode-race-h200-x2.json").read_text())
    alone = json.loads((results / "two-cards-h200.json").read_text())["llama-2-70b, ours alone"]
    found = {
        name: [
            f"{statistics.median(cell['ours_tps']) / ideal_tps(name, cell['batch']):.0%}"
            for cell in cells
            if cell["k"] == 0 and cell.get("shape", "@2").endswith("@2")
        ]
        for name, cells in (("llama-3.1-8b", race), ("llama-2-70b", alone))
    }
    assert found == {"llama-3.1-8b": ["82%", "79%", "71%"], "llama-2-70b": ["93%", "91%", "82%"]}
    text = " ".join(README)
    assert "B = 1, 8, 64: 82, 79 and 71." in text and "which is 93, 91 and 82 percent" in text
    medians = [f"{statistics.median(cell['ours_tps']):,.0f}" for cell in alone]
    assert medians == ["57", "442", "3,043", "151", "1,071", "4,052"]
