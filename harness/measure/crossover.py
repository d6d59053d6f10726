"""Where a strategy stops paying: its speed-up by load, and the load at which that falls below 1, by bootstrap.

Shapes: R resamples, B blocks (repeats), P prompts, L loads, in the order of the loads.

Every arm is compared with the baseline of its own run, block by block and prompt by prompt, and a resample takes the
same blocks and prompts for both. Blocks are resampled, and prompts within them: blocks anew at each load, which was
measured in blocks of its own; prompts once a resample for all blocks, arms and loads, because all of them ran the same
prompts, and a prompt whose drafts are accepted is fast in every one of them. Each draw takes n - 1 of n, whose spread
is that of the mean; n of n would be too narrow by sqrt((n - 1) / n) (Rao and Wu 1988).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specbench.harness.measure.stats import NUM_RESAMPLES

Array = NDArray[np.float64]

LEVEL = 0.95
_SEED = 20_078  # fixed: the same raw tables always give the same report
BELOW, BETWEEN, BEYOND = "below", "between", "beyond"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PairedBlocks:
    """An arm beside its baseline at one load.

    log_tpot_BP: ln(baseline TPOT / arm TPOT), nan where a block has no such pair. log_tps_B: ln(arm TPS / baseline TPS)
    of whole blocks. tokens_BP, service_ns_BP: of each prompt's requests, the arm's and the baseline's; 0 where none.
    """

    log_tpot_BP: Array
    log_tps_B: Array
    tokens_BP: tuple[Array, Array]
    service_ns_BP: tuple[Array, Array]

    @property
    def num_blocks(self) -> int:
        return len(self.log_tps_B)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Draws:
    """How often each resample takes each prompt, and each block of each run (by its id)."""

    prompts_RP: Array
    blocks_RB: Mapping[str, Array]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """A speed-up with its 95 % interval; above 1 the arm is faster. No interval where nothing could be resampled."""

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """The load at which a curve falls below 1 for good.

    value, low, high: loads; 0 is below the first measured load (it never pays), inf beyond the last (it always does).
    share_below, share_beyond: of the resamples that end there. No interval (None) where nothing could be resampled.
    """

    value: float
    low: float | None
    high: float | None
    share_below: float
    share_beyond: float
    first: int
    last: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: each end as the side it lies on, and the load where it lies between."""
        found: dict[str, Any] = {"first_load": self.first, "last_load": self.last}
        for name in ("value", "low", "high"):
            at = getattr(self, name)
            side = None if at is None else BELOW if at == 0 else BEYOND if math.isinf(at) else BETWEEN
            found |= {name: at if side == BETWEEN else None, f"{name}_side": side}
        return {**found, "share_below": self.share_below, "share_beyond": self.share_beyond}


def draw(num_blocks: Mapping[str, int], num_prompts: int, num_resamples: int = NUM_RESAMPLES) -> Draws:
    """Resamples of the blocks of each run, and of the prompts that all runs share."""
    rng = np.random.default_rng(_SEED)

    def counts(n: int) -> Array:
        return rng.multinomial(max(n - 1, 1), np.full(n, 1 / n), size=num_resamples).astype(float)

    return Draws(prompts_RP=counts(num_prompts), blocks_RB={run: counts(n) for run, n in num_blocks.items()})


def once(num_blocks: int, num_prompts: int) -> tuple[Array, Array]:
    """The sample itself, as one resample: every block and every prompt once."""
    return np.ones((1, num_blocks)), np.ones((1, num_prompts))


def log_tpot(pairs: PairedBlocks, blocks_RB: Array, prompts_RP: Array) -> Array:
    """ln of the speed-up of TPOT [R]: the mean over prompts of a prompt's mean over blocks, as `speedup.Speedup` has
    it; nan for a resample without any pair."""
    known_BP = np.isfinite(pairs.log_tpot_BP)
    num_RP = blocks_RB @ known_BP
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_RP = np.where(num_RP > 0, (blocks_RB @ np.where(known_BP, pairs.log_tpot_BP, 0.0)) / num_RP, 0.0)
        weight_RP = prompts_RP * (num_RP > 0)
        return (weight_RP * mean_RP).sum(axis=1) / weight_RP.sum(axis=1)


def log_tps(pairs: PairedBlocks, blocks_RB: Array, prompts_RP: Array) -> Array:
    """ln of the ratio of throughputs [R]: the mean over blocks of ln(arm TPS / baseline TPS) within a block.

    A block's window cannot be resampled. What it would have been with other prompts follows from Little's law: with
    requests in flight held constant, TPS goes as (sum of tokens) / (sum of times in service).
    """
    shift_RB = _log_rate(pairs, 0, prompts_RP) - _log_rate(pairs, 1, prompts_RP)
    value_RB = pairs.log_tps_B + shift_RB
    known_RB = np.isfinite(value_RB)
    weight_RB = blocks_RB * known_RB
    with np.errstate(invalid="ignore", divide="ignore"):
        return (weight_RB * np.where(known_RB, value_RB, 0.0)).sum(axis=1) / weight_RB.sum(axis=1)


def _log_rate(pairs: PairedBlocks, side: int, prompts_RP: Array) -> Array:
    """ln of tokens per time in service [R, B] of one side, against the block's own."""
    tokens_BP, service_BP = pairs.tokens_BP[side], pairs.service_ns_BP[side]
    with np.errstate(invalid="ignore", divide="ignore"):
        own_B = np.log(tokens_BP.sum(axis=1) / service_BP.sum(axis=1))
        return np.log((prompts_RP @ tokens_BP.T) / (prompts_RP @ service_BP.T)) - own_B


def ratio_of(log_value: float, log_R: Array | None) -> Ratio:
    """The speed-up of a log value, its interval from the resamples; None: there are none."""
    kept = log_R[np.isfinite(log_R)] if log_R is not None else np.empty(0)
    if not len(kept):
        return Ratio(ratio=math.exp(log_value), low=None, high=None)
    low, high = np.quantile(kept, _ends())
    return Ratio(ratio=math.exp(log_value), low=float(np.exp(low)), high=float(np.exp(high)))


def crossings(log_RL: Array, loads: Sequence[int]) -> Array:
    """Where each curve of ln(speed-up) falls below 0 for good [R]: 0 below the first load, inf beyond the last.

    Between two measured loads the speed-up is taken as straight over log2 of the load.
    """
    num_loads = len(loads)
    speedup_RL, log2_L = np.exp(log_RL), np.log2(np.asarray(loads, dtype=float))
    below_RL = speedup_RL < 1
    num_last_below_R = np.cumprod(below_RL[:, ::-1], axis=1).sum(axis=1)  # how many of the last loads are below
    first_R = num_loads - num_last_below_R
    right_R = np.clip(first_R, 1, num_loads - 1) if num_loads > 1 else np.zeros(len(log_RL), dtype=int)
    left_R = np.maximum(right_R - 1, 0)
    rows = np.arange(len(log_RL))
    y0, y1 = speedup_RL[rows, left_R], speedup_RL[rows, right_R]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):  # of curves that do not cross, not taken
        share_R = (y0 - 1) / (y0 - y1)
        between_R = 2 ** (log2_L[left_R] + share_R * (log2_L[right_R] - log2_L[left_R]))
    return np.where(first_R == 0, 0.0, np.where(first_R == num_loads, np.inf, between_R))


def crossing_of(log_L: Array, loads: Sequence[int], log_RL: Array | None) -> Crossing:
    """The crossing of a curve, its interval from the curves of the resamples; None: there are none.

    Resamples that never cross stay in the interval, as its ends below and beyond what was measured.
    """
    ends: list[float | None] = [None, None]
    shares = (0.0, 0.0)
    kept = log_RL[np.isfinite(log_RL).all(axis=1)] if log_RL is not None else np.empty((0, len(loads)))
    if len(kept):
        at_R = crossings(kept, loads)
        ends = [float(end) for end in np.quantile(at_R, _ends(), method="inverted_cdf")]
        shares = float((at_R == 0).mean()), float(np.isinf(at_R).mean())
    return Crossing(
        value=float(crossings(log_L[None], loads)[0]),
        low=ends[0],
        high=ends[1],
        share_below=shares[0],
        share_beyond=shares[1],
        first=loads[0],
        last=loads[-1],
    )


def shares_best(log_RA: Array) -> Array:
    """In which share of the resamples each of A arms is the fastest [A]."""
    kept = log_RA[np.isfinite(log_RA).all(axis=1)]
    return np.bincount(kept.argmax(axis=1), minlength=log_RA.shape[1]) / max(len(kept), 1)


def _ends() -> tuple[float, float]:
    return (1 - LEVEL) / 2, (1 + LEVEL) / 2
