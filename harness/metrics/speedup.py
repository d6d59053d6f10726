"""How much faster an arm is than the baseline arm of the same run, on the same prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from specbench.harness.metrics.grouping import group_numbers
from specbench.harness.metrics.latency import tpot_by_request_ms
from specbench.harness.metrics.same_requests import are_answered, can_be_same, pair_requests, same_output
from specbench.harness.registry import BASELINE
from specbench.harness.stats.spread import Interval, crossed_interval
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.results import Figures, Speedup

NO_INTERVAL = "one repeat has no interval: nothing shows how blocks differ"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """`ratio`: of medians over the blocks; `min`, `max`: extremes of the ratios within a repeat; None without a common
    repeat."""

    ratio: float
    min: float | None = None
    max: float | None = None


def baseline_of(arm: ArmRecord, arms: Sequence[ArmRecord]) -> ArmRecord | None:
    """The arm that `arm` is compared with: the first `no-spec` of its own engine, else the first of all; for an
    imported arm, the one that the import named."""
    if arm.imported is not None:
        return next((one for one in arms if one.label == arm.imported.baseline), None)
    plain = [one for one in arms if one.strategy == BASELINE]
    same = [one for one in plain if one.config.engine == arm.config.engine]
    return next(iter((*same, *plain)), None)


def speedup(
    label: str, baseline: str, blocks: Mapping[tuple[str, int], Figures], requests: pd.DataFrame
) -> Speedup | None:
    """Arm `label` against arm `baseline`; None if the baseline was not measured. `blocks`: figures by (arm, repeat)."""
    if not _by_repeat("tps", baseline, blocks):
        return None
    tps = block_ratio("tps", label, baseline, blocks)
    return replace(
        tpot_speedup(label, baseline, requests),
        tps_ratio=tps.ratio if tps else None,
        tps_ratio_min=tps.min if tps else None,
        tps_ratio_max=tps.max if tps else None,
    )


def tpot_speedup(label: str, baseline: str, requests: pd.DataFrame) -> Speedup:
    """The speed-up in TPOT alone, over any selection of requests: throughput belongs to whole blocks."""
    answers = answer_pairs(label, baseline, requests)
    pairs = _timed(answers)
    by_prompt, by_block = _means(pairs)
    interval = crossed_interval(by_block)
    known = answers[can_be_same(answers)]
    return Speedup(
        baseline=baseline,
        tps_ratio=None,
        tps_ratio_min=None,
        tps_ratio_max=None,
        tpot_ratio=float(np.exp(by_prompt.mean())) if len(by_prompt) else None,
        tpot_ratio_low=float(np.exp(interval.low)) if interval else None,
        tpot_ratio_high=float(np.exp(interval.high)) if interval else None,
        num_prompts=len(by_prompt),
        num_pairs=len(answers),
        same_output_rate=float(known["same_output"].mean()) if len(known) else None,
        method="geometric mean of paired TPOT ratios; " + _method(interval, len(by_block)),
    )


def _means(pairs: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Mean log ratio of every prompt [P], and of every prompt in every block [B, P], nan where it has none."""
    prompts, blocks = (group_numbers([pairs[name].to_numpy()]) for name in ("prompt_id", "repeat"))
    shape = blocks.max(initial=-1) + 1, prompts.max(initial=-1) + 1
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (blocks, prompts), pairs["log_ratio"].to_numpy(dtype=float))
    np.add.at(counts, (blocks, prompts), 1)
    with np.errstate(invalid="ignore"):  # 0 / 0
        return sums.sum(axis=0) / counts.sum(axis=0), sums / counts


def _method(interval: Interval | None, num_blocks: int) -> str:
    if interval is not None:
        return interval.describe(f"prompts and {num_blocks} blocks")
    return NO_INTERVAL if num_blocks < 2 else "no interval: it takes two prompts, and two blocks of each"


def block_ratio(name: str, label: str, baseline: str, blocks: Mapping[tuple[str, int], Figures]) -> Ratio | None:
    """Figure `name` of arm `label` over that of `baseline`; None if either was not measured."""
    top, bottom = (_by_repeat(name, arm, blocks) for arm in (label, baseline))
    if not top or not bottom:
        return None
    ratios = [top[repeat] / bottom[repeat] for repeat in top if repeat in bottom]
    medians = [float(np.median(list(values.values()))) for values in (top, bottom)]
    return Ratio(ratio=medians[0] / medians[1], min=min(ratios, default=None), max=max(ratios, default=None))


def _by_repeat(name: str, label: str, blocks: Mapping[tuple[str, int], Figures]) -> dict[int, float]:
    return {n: value for (arm, n), figures in blocks.items() if arm == label and (value := figures.get(name))}


def answer_pairs(label: str, baseline: str, requests: pd.DataFrame) -> pd.DataFrame:
    """Pairs of the same request that both arms answered (`pair_requests`), with the TPOT of both."""
    sides = []
    for name in (baseline, label):
        rows = requests[requests["arm"] == name].reset_index(drop=True)
        sides.append(rows.assign(tpot_ms=tpot_by_request_ms(rows)))
    pairs = pair_requests(sides[0], sides[1], ["output_sha256", "tpot_ms", "finish_reason"])
    pairs = pairs[are_answered(pairs)]
    return pairs.assign(same_output=same_output(pairs))


def tpot_pairs(label: str, baseline: str, requests: pd.DataFrame) -> pd.DataFrame:
    """The pairs of `answer_pairs` with a TPOT on both sides; log_ratio: log(baseline / arm)."""
    return _timed(answer_pairs(label, baseline, requests))


def _timed(pairs: pd.DataFrame) -> pd.DataFrame:
    timed = pairs[(pairs["tpot_ms_a"] > 0) & (pairs["tpot_ms_b"] > 0)]
    return timed.assign(log_ratio=np.log(timed["tpot_ms_a"] / timed["tpot_ms_b"]))
