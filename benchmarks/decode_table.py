"""Cells against vLLM from before the kernels for few rows, from raw figures: `python benchmarks/decode_table.py`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parent / "results" / "decode-h200.json"
CELL = ["shape", "k", "batch", "num_prompt"]


def table(rows: list[dict]) -> pd.DataFrame:
    """Medians of each cell: ours from the newest run, vLLM's better of multiprocessing on and off."""
    frame = pd.DataFrame(rows)
    frame["tps"] = frame["decode_tps"].map(statistics.median)
    ours = frame[frame["engine"] == "specbench"].sort_values("measured_in").groupby(CELL).last()
    theirs = frame[frame["engine"] != "specbench"].sort_values("tps").groupby(CELL).last()
    joined = ours[["tps", "check"]].join(theirs[["tps"]].rename(columns={"tps": "tps_vllm"}))
    joined["ratio"] = joined["tps"] / joined["tps_vllm"]
    return joined.reset_index()


def main() -> None:
    print("| shape | K | B | prompt | specbench TPS | vLLM TPS (best) | ratio | identical / near-tie |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in table(json.loads(RESULTS.read_text())).itertuples():
        check = row.check.replace(" identical, ", " / ").replace(" diverge at a near-tie", "")
        cells = [row.shape, row.k, row.batch, row.num_prompt, f"{row.tps:,.0f}", f"{row.tps_vllm:,.0f}"]
        print("|", " | ".join(map(str, [*cells, f"{row.ratio:.2f}", check])), "|")


if __name__ == "__main__":
    main()
