"""The pairs of each metric, from the raw tables of an A/B run: by block for times, by prompt for acceptance."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from specbench.harness.metrics.same_requests import count_same_outputs
from specbench.harness.stats.verdict import Metric
from specbench.harness.store.ab_record import LABELS
from specbench.harness.store.results import Figures
from specbench.harness.store.schema import Frames

Pairs = list[tuple[float, float]]

STEP_TIME = Metric(name="step time", unit="ms", better="lower", pairs="blocks")
TOKENS_PER_STEP = Metric(name="tokens per step", better="higher", pairs="prompts")
TPOT = Metric(name="TPOT", unit="ms", better="lower", pairs="blocks")
TPS = Metric(name="TPS", unit="tokens/s", better="higher", pairs="blocks", gated=False)
TTFT = Metric(name="TTFT", unit="ms", better="lower", pairs="blocks", gated=False)

METRICS = (STEP_TIME, TOKENS_PER_STEP, TPOT, TPS, TTFT)

# Where a metric paired by block stands among the figures of `block_figures`.
_BY_BLOCK = {
    STEP_TIME: "round_ms.p50",
    TPOT: "tpot_ms.mean",
    TPS: "tps",
    TTFT: "ttft_ms.mean",
}


def metric_pairs(
    frames: Frames, figures: Mapping[tuple[str, int], Figures], blocks: Collection[int]
) -> dict[Metric, Pairs]:
    """Pairs (A, B) of every metric over `blocks`. `figures`: `block_figures` of the run. Gated metrics first."""
    return {metric: pairs_of(metric, frames, figures, blocks) for metric in METRICS}


def pairs_of(
    metric: Metric, frames: Frames, figures: Mapping[tuple[str, int], Figures], blocks: Collection[int]
) -> Pairs:
    """Pairs (A, B) of one metric.

    step time: median duration of the decode rounds of a block, gaps in front included. TPOT, TTFT: mean over the
    requests of a block. tokens per step: of a prompt, tokens kept / forwards, all its blocks pooled.
    """
    if metric not in _BY_BLOCK:
        return _by_prompt(frames, blocks)
    name = _BY_BLOCK[metric]
    both = ((figures["A", n].get(name), figures["B", n].get(name)) for n in blocks)
    return [(a, b) for a, b in both if a and b]


def _by_prompt(frames: Frames, blocks: Collection[int]) -> Pairs:
    rows = frames.steps[frames.steps["repeat"].isin(list(blocks)) & ~frames.steps["is_prefill"].astype(bool)]
    keys = ["arm", "repeat", "request_id"]
    rows = rows[[*keys, "num_emitted"]].merge(frames.requests[[*keys, "prompt_id"]], on=keys)
    sums = rows.groupby(["arm", "prompt_id"])["num_emitted"].agg(["sum", "count"])
    rates = (sums["sum"] / sums["count"]).unstack("arm").reindex(columns=list(LABELS)).dropna()
    rates = rates[(rates > 0).all(axis=1)]
    return list(zip(rates["A"], rates["B"], strict=True))


def same_outputs(requests: pd.DataFrame, blocks: Collection[int]) -> tuple[int, int]:
    """(pairs with identical tokens, pairs): requests of both sides with the same prompt in the same block."""
    kept = requests[requests["repeat"].isin(list(blocks))]
    a, b = (kept[kept["arm"] == label] for label in LABELS)
    return count_same_outputs(a, b)
