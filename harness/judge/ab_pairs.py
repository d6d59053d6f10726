"""The pairs of each metric, from the raw tables of an A/B run: by block for times, by prompt for acceptance."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from specbench.harness.metrics.figures import TOKENS_PER_STEP, Figure
from specbench.harness.metrics.same_requests import count_same_outputs
from specbench.harness.stats.verdict import Metric, Pairs
from specbench.harness.store.ab_record import LABELS
from specbench.harness.store.results import Figures
from specbench.harness.store.schema import Frames

OF_PROMPTS = (TOKENS_PER_STEP,)
"""Properties of the prompts, not of the machine at that time."""


def metric_of(figure: Figure, pairs: str) -> Metric:
    return Metric(name=figure.name, better=figure.better, pairs=pairs, unit=figure.unit, gated=figure.gated)


def pairs_of(
    figure: Figure, frames: Frames, figures: Mapping[tuple[str, int], Figures], blocks: Collection[int]
) -> Pairs:
    """Pairs (A, B) of one figure over `blocks`; `figures`: of the run, by arm and block.

    step time: median duration of the decode rounds of a block, gaps in front included. TPOT, TTFT: mean over the
    requests of a block. tokens per step: of a prompt, tokens kept / forwards, all its blocks pooled.
    """
    if figure in OF_PROMPTS:
        return Pairs(metric=metric_of(figure, "prompts"), values=_by_prompt(frames, blocks))
    both = ((figures["A", n].get(figure.block), figures["B", n].get(figure.block)) for n in blocks)
    return Pairs(metric=metric_of(figure, "blocks"), values=[(a, b) for a, b in both if a and b])


def _by_prompt(frames: Frames, blocks: Collection[int]) -> list[tuple[float, float]]:
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
