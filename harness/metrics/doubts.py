"""Marks of rows that show what cannot be, or what was measured under conditions that do not hold for its neighbours.

A mark begins with its word. Every table shows it: in the row's name, in its marks, or in a line below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.block_records import BlockRecord
from specbench.harness.store.results import Acceptance, Speedup

IMPOSSIBLE, DISTURBED, UNSTABLE = "IMPOSSIBLE", "DISTURBED", "warm-up not stable"
DOUBTS = (IMPOSSIBLE, DISTURBED, UNSTABLE)
"""How they begin."""

MOST_GAIN = 1.05
"""Of a speed-up over tokens per forward, one request at a time: a forward with drafts is not faster than one without,
so that beyond this the two arms were not timed on the same machine."""


def is_doubt(mark: str) -> bool:
    return mark.startswith(DOUBTS)


def doubts(
    arm: ArmRecord,
    speedup: Speedup | None,
    acceptance: Acceptance | None,
    requests: pd.DataFrame,
    steps: pd.DataFrame,
    seen: Sequence[BlockRecord],
) -> Iterator[str]:
    """Of one arm. `speedup`: None where something else than speculation makes it. `requests`, `steps`: its rows, all
    repeats. `seen`: of the machine, around its blocks."""
    if speedup is not None and acceptance is not None and _is_one_at_a_time(requests):
        yield from _impossible(speedup, acceptance.tokens_per_forward, requests, steps)
    if disturbed := [record.disturbances for record in seen if record.disturbances]:
        yield f"{DISTURBED}: {'; '.join(disturbed[0])} ({len(disturbed)} of {len(seen)} blocks)"
    if arm.warmup is not None and arm.warmup.startswith("not stable"):
        yield f"warm-up {arm.warmup}"


def _impossible(
    speedup: Speedup, tokens_per_forward: float | None, requests: pd.DataFrame, steps: pd.DataFrame
) -> Iterator[str]:
    if tokens_per_forward is None:
        return
    limits = {
        "TPS": (speedup.tps_ratio, tokens_per_forward),
        "TPOT": (speedup.tpot_ratio, _by_prompt(requests, steps)),
    }
    for name, (ratio, most) in limits.items():
        if ratio is not None and ratio > MOST_GAIN * most:
            yield (
                f"{IMPOSSIBLE}: {name} {ratio:.2f}x with {most:.2f} tokens per forward, one request at a time: "
                f"more than speculation gives; {speedup.baseline} ran on a slower machine or with other switches"
            )
            return


def _is_one_at_a_time(requests: pd.DataFrame) -> bool:
    """No request was sent before the one before it had ended."""
    alive = requests[requests["num_output_tokens"] >= 1].sort_values(["repeat", "t_submit_ns"])
    ended_ns = alive.groupby("repeat")["t_last_ns"].shift()
    return bool((alive["t_submit_ns"] >= ended_ns)[ended_ns.notna()].all())


def _by_prompt(requests: pd.DataFrame, steps: pd.DataFrame) -> float:
    """Geometric mean over prompts of their tokens per forward: what a mean of TPOT ratios over prompts may reach."""
    prompts = requests[["repeat", "request_id", "prompt_id"]]
    rows = steps[~steps["is_prefill"].astype(bool) & steps["num_accepted"].notna()]
    rows = rows.merge(prompts, on=["repeat", "request_id"], how="inner")
    sums = rows.groupby("prompt_id")["num_emitted"].agg(["sum", "count"])
    return float(np.exp(np.log((sums["sum"] / sums["count"]).astype(float)).mean()))
