"""Experiments on equal sides, simulated from the noise of real ones:
`PYTHONPATH=.ns python benchmarks/simulated_aa.py benchmarks/engines/vllm-aa-h200/*/ab.json`.

Blocks of all given A/A experiments are drawn anew with replacement, their sides swapped by chance, and judged as `ab`
judges: step time and TPOT together, with Holm's correction. Prints the verdicts of the first 20, and the share of false
ones among many.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np

from specbench.harness.stats.verdict import IMPROVED, REGRESSED, Pairs, compare
from specbench.harness.store.ab_judgement import AB_SCHEMA, JudgedMetric, Judgement
from specbench.harness.store.codec import read_document

NUM_BLOCKS = 10
NUM_SHOWN, NUM_SIMULATED = 20, 2_000


def main(paths: list[Path]) -> None:
    experiments = [gated(read_document(path, Judgement, AB_SCHEMA)) for path in paths]
    metrics = [found.metric for found in experiments[0]]
    values = np.concatenate([[found.pairs for found in one] for one in experiments], axis=1)  # [metrics, blocks, sides]
    draw = np.random.default_rng(1)
    found: list[Counter[str]] = [Counter() for _ in metrics]
    num_false = 0
    for n in range(NUM_SIMULATED):
        drawn = values[:, draw.integers(values.shape[1], size=NUM_BLOCKS)]
        swapped = np.where(draw.integers(2, size=NUM_BLOCKS)[:, None], drawn, drawn[..., ::-1])
        judged = compare(
            [Pairs(metric=metric, values=rows.tolist()) for metric, rows in zip(metrics, swapped, strict=True)]
        )
        verdicts = [one.verdict for one in judged]
        num_false += any(verdict in (IMPROVED, REGRESSED) for verdict in verdicts)
        if n < NUM_SHOWN:
            for counter, verdict in zip(found, verdicts, strict=True):
                counter[verdict] += 1
    print(f"{values.shape[1]} blocks of {len(paths)} experiments; {NUM_BLOCKS} a simulated experiment")
    for metric, counter in zip(metrics, found, strict=True):
        print(
            f"{metric.name}, {NUM_SHOWN} experiments: {', '.join(f'{n} {verdict}' for verdict, n in counter.items())}"
        )
    print(f"a change in {num_false} of {NUM_SIMULATED}")


def gated(judgement: Judgement) -> list[JudgedMetric]:
    """The metrics by blocks that decide."""
    return [one for one in judgement.metrics if one.metric.gated and one.metric.pairs == "blocks"]


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
