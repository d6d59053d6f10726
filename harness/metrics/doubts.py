"""Marks of rows whose figures are impossible, or were measured under conditions that do not hold for the other rows.

A mark starts with its keyword. Every table shows it: in the row's name, in its marks, or in a line below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from specbench.harness.metrics.grouping import group_numbers, with_prompts
from specbench.harness.metrics.latency import tpot_by_request_ms
from specbench.harness.metrics.same_requests import are_answered, can_be_same, pair_requests, same_output
from specbench.harness.store.arm_record import NOT_PLAUSIBLE, ArmRecord
from specbench.harness.store.block_records import BlockRecord, unrecorded
from specbench.harness.store.block_store import Block
from specbench.harness.store.results import Acceptance, ArmSummary, Results, Speedup

IMPOSSIBLE, DISTURBED, UNSTABLE = "IMPOSSIBLE", "DISTURBED", "warm-up not stable"
UNRECORDED = "machine not recorded"
CHANGED = "output not stable"
ONE_PIECE = "answers in one piece"
NOT_LOSSLESS = "NOT LOSSLESS"  # how the mark of an arm whose certificate failed begins
VOID = "GRAPH CLAIM VOID"  # and of one whose trace contradicts its graph plan
DOUBTS = (IMPOSSIBLE, DISTURBED, UNRECORDED, UNSTABLE, CHANGED, ONE_PIECE, NOT_PLAUSIBLE)
"""How they begin."""

OF_ARM, OF_RUN = ("synthetic", NOT_LOSSLESS, VOID), (IMPOSSIBLE, DISTURBED)
"""The marks that stand in brackets after a row's name: of the arm in any run, and of this measurement."""

MAX_GAIN = 1.05
"""Limit of the speed-up divided by tokens per forward, at concurrency 1. A forward with drafts is not faster than one
without, so beyond this the two arms were not timed under the same conditions."""

MAX_IN_ONE_PIECE = 0.01
"""Of the requests: a few short answers can be read at once."""


def is_doubt(mark: str) -> bool:
    return mark.startswith(DOUBTS)


def casts_doubt(mark: str) -> bool:
    """Whether the mark is a doubt, a failed certificate, or a trace that contradicts the graph plan. What an arm is
    declared to be, such as forced acceptance, is a fact, and its figures are what they claim."""
    return is_doubt(mark) or mark.startswith((NOT_LOSSLESS, VOID))


def doubts(
    arm: ArmRecord,
    speedup: Speedup | None,
    acceptance: Acceptance | None,
    requests: pd.DataFrame,
    steps: pd.DataFrame,
    seen: Sequence[BlockRecord],
    num_blocks: int,
) -> Iterator[str]:
    """The marks of one arm. `speedup`: None if something other than speculation differs. `requests`, `steps`: its rows,
    all repeats. `seen`: observations of the machine around its blocks, of which some may have been lost."""
    if speedup is not None and acceptance is not None and _is_one_at_a_time(requests):
        yield from _impossible(speedup, acceptance.tokens_per_forward, requests, steps)
    if disturbed := [record for record in seen if record.disturbances]:
        worst = max(disturbed, key=lambda record: record.load or 0.0)
        yield f"{DISTURBED}: {'; '.join(worst.disturbances)} ({len(disturbed)} of {num_blocks} blocks)"
    if arm.warmup is not None and arm.warmup.startswith("not stable"):
        yield f"warm-up {arm.warmup}"
    tpot_ms = tpot_by_request_ms(requests)
    num = int((tpot_ms == 0).sum())  # a proxy that buffers, or pieces that were read together
    if num > MAX_IN_ONE_PIECE * len(tpot_ms):
        yield f"{ONE_PIECE}: {num} of {len(tpot_ms)} requests; their TPOT of 0 counts in the mean, not in the speed-up"


def with_unrecorded(found: Results, seen: Mapping[Block, BlockRecord]) -> Results:
    """Marks the arms that have blocks without a record now: results are stored, records are not part of them."""
    blocks = found.by_block()
    lost = Counter(label for label, _ in unrecorded(blocks, seen))

    def marked(arm: ArmSummary) -> ArmSummary:
        kept = tuple(mark for mark in arm.marks if not mark.startswith(UNRECORDED))
        num = sum(label == arm.label for label, _ in blocks)
        mark = f"{UNRECORDED}: around {lost[arm.label]} of {num} blocks, which may have been disturbed"
        return replace(arm, marks=(*kept, mark) if arm.label in lost else kept)

    return replace(found, arms=tuple(map(marked, found.arms)))


def changed_output(requests: pd.DataFrame) -> Iterator[str]:
    """The mark of one arm at temperature 0 whose first and last blocks give the first prompt different outputs. There
    is nothing to compare if the engine does not report outputs, or if a request failed."""
    first, last = requests["repeat"].min(), requests["repeat"].max()
    begun, ended = (requests[requests["repeat"] == repeat].assign(repeat=0) for repeat in (first, last))
    pairs = pair_requests(begun, ended, ["request_id", "output_sha256", "finish_reason"]).sort_values("request_id_a")
    pairs = pairs.head(1)
    for prompt in pairs.loc[are_answered(pairs) & can_be_same(pairs) & ~same_output(pairs), "prompt_id"]:
        yield (
            f"{CHANGED}: greedy output of prompt {prompt} in repeat {last + 1} is not that of repeat {first + 1}; "
            "right only where two tokens were tied, in half precision or in another batch size"
        )


def _impossible(
    speedup: Speedup, tokens_per_forward: float | None, requests: pd.DataFrame, steps: pd.DataFrame
) -> Iterator[str]:
    if tokens_per_forward is None:
        return
    of_prompts = None if speedup.tpot_ratio is None else _by_prompt(requests, steps)
    limits = {"TPS": (speedup.tps_ratio, tokens_per_forward), "TPOT": (speedup.tpot_ratio, of_prompts)}
    for name, (ratio, most) in limits.items():
        if ratio is not None and most is not None and ratio > MAX_GAIN * most:
            yield (
                f"{IMPOSSIBLE}: {name} {ratio:.2f}x with {most:.2f} tokens per forward at concurrency 1: more than "
                f"speculation can give; {speedup.baseline} ran on a slower machine or with other switches"
            )
            return


def _is_one_at_a_time(requests: pd.DataFrame) -> bool:
    """Whether no request was sent before the previous one had ended."""
    alive = requests[requests["num_output_tokens"] >= 1].sort_values(["repeat", "t_submit_ns"])
    ended_ns = alive.groupby("repeat")["t_last_ns"].shift()
    return bool((alive["t_submit_ns"] >= ended_ns)[ended_ns.notna()].all())


def _by_prompt(requests: pd.DataFrame, steps: pd.DataFrame) -> float | None:
    """Geometric mean over prompts of their tokens per forward: the limit of a mean of TPOT ratios over prompts. Without
    requests that have no TPOT: a forward that was already running when an answer of one token ended keeps none."""
    timed = requests.reset_index(drop=True)
    timed = timed.loc[tpot_by_request_ms(timed).index]
    rows = steps[~steps["is_prefill"].to_numpy().astype(bool) & steps["num_accepted"].notna().to_numpy()]
    rows = with_prompts(rows[["repeat", "request_id", "num_emitted"]], timed)
    prompts = group_numbers([rows["prompt_id"].to_numpy()])
    per_forward = np.bincount(prompts, rows["num_emitted"]) / np.bincount(prompts)
    return float(np.exp(np.log(per_forward).mean())) if len(per_forward) else None
