"""A whole crossover: every arm of every load against no speculation, its break-even concurrency, and which arm is best.

`crossover_record` makes plain data of runs that differ in their load only: what `specbench sweep` stores as
`crossover.json`, and what the site derives from runs that happen to make a curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specbench.harness.judge.crossover_samples import LoadPoint, PointBlocks, measured, paired_blocks, point_blocks
from specbench.harness.metrics.figures import TPOT_MS, TPS
from specbench.harness.registry import BASELINE
from specbench.harness.stats.crossover import (
    Array,
    Draws,
    PairedBlocks,
    crossing_of,
    draw,
    log_tpot,
    log_tps,
    once,
    ratio_of,
    shares_best,
)
from specbench.harness.stats.spread import NUM_RESAMPLES
from specbench.harness.store.files import to_object

SCHEMA = "specbench.crossover/1"
RECORD_FILE = "crossover.json"  # where a sweep stores it
FIGURES = {"tpot": TPOT_MS, "tps": TPS}
FEW_BLOCKS = 6

_Curve = dict[int, tuple[float, Array]]  # by load: ln of the speed-up, and of its resamples [R]


def crossover_record(
    points: Sequence[LoadPoint], families: Mapping[str, tuple[str, int | None]] | None = None
) -> dict[str, Any]:
    """Plain data. `points`: where two have the same load and arm, the first counts. `families`: by arm label, its
    family and its number of drafts: what arms of one family differ in."""
    prompts = sorted({prompt for point in points for prompt in measured(point.requests)["prompt_id"]})
    blocks = [point_blocks(point, prompts) for point in points]
    num_blocks = {own.point.run_id: own.num_blocks for own in blocks if own.num_blocks}
    draws = draw(num_blocks, len(prompts)) if prompts else None
    loads = sorted({point.load for point in points})
    curves: dict[str, dict[str, _Curve]] = {}
    arms = []
    for label in dict.fromkeys(arm.label for point in points for arm in point.arms):
        cells, curves[label] = _arm(label, blocks, loads, draws)
        family, num_drafts = (families or {}).get(label, (label, None))
        about = {"label": label, "family": family, "num_drafts": num_drafts, "notes": _notes_of(label, points)}
        crossing = {**_crossings(curves[label], len(prompts)), "ideal": _ideal_crossing(cells)}
        arms.append({**about, "points": cells, "crossing": crossing})
    return to_object(
        {
            "schema": SCHEMA,
            "baseline": BASELINE,
            "loads": loads,
            "num_blocks": num_blocks,
            "num_prompts": len(prompts),
            "method": _method(sorted(set(num_blocks.values())), len(prompts)),
            "arms": arms,
            "best": _best(arms, curves, loads),
        }
    )


def _arm(
    label: str, blocks: Sequence[PointBlocks], loads: Sequence[int], draws: Draws | None
) -> tuple[list[dict[str, Any]], dict[str, _Curve]]:
    """A cell a load (of the newest run that has the arm there), and the curves of both figures."""
    cells: list[dict[str, Any]] = []
    curves: dict[str, _Curve] = {name: {} for name in FIGURES}
    for load in loads:
        own = _blocks_of(label, load, blocks)
        if own is None:
            continue
        cell = {"load": load, **_cell(label, own)}
        pairs = _pairs(label, own)
        if pairs is not None and draws is not None:
            num_prompts = draws.prompts_RP.shape[1]
            for name, (value, found) in _figures(pairs, draws, draws.blocks_RB[own.point.run_id]).items():
                if np.isfinite(value):
                    curves[name][load] = (value, found)
                    cell[name] = ratio_of(value, found if num_prompts > 1 else None)
        cells.append(cell)
    return cells, curves


def _figures(pairs: PairedBlocks, draws: Draws, blocks_RB: Array) -> dict[str, tuple[float, Array]]:
    """By name: ln of the speed-up, and of its resamples [R]."""
    blocks_1B, prompts_1P = once(pairs.num_blocks, draws.prompts_RP.shape[1])
    return {
        "tpot": (float(log_tpot(pairs, blocks_1B, prompts_1P)[0]), log_tpot(pairs, blocks_RB, draws.prompts_RP)),
        "tps": (float(log_tps(pairs, blocks_1B)[0]), log_tps(pairs, blocks_RB, draws.order_RN)),
    }


def _blocks_of(label: str, load: int, blocks: Sequence[PointBlocks]) -> PointBlocks | None:
    """The first that measured the arm, else the first that has it at all."""
    at_load = (own for own in blocks if own.point.load == load)
    having = [own for own in at_load if any(arm.label == label for arm in own.point.arms)]
    return next((own for own in having if label in own.arms), having[0] if having else None)


def _pairs(label: str, blocks: PointBlocks) -> PairedBlocks | None:
    baseline = blocks.baseline(BASELINE)
    if baseline is None or baseline == label or label not in blocks.arms:
        return None
    return paired_blocks(blocks.arms[label], blocks.arms[baseline], blocks.point.load)


def _cell(label: str, blocks: PointBlocks) -> dict[str, Any]:
    """What the arm did there by itself: medians over blocks, its state, and what the roofline would allow."""
    described = next(arm for arm in blocks.point.arms if arm.label == label)
    figures = blocks.arms.get(label)
    return {
        "run": blocks.point.run_id,
        "status": described.status,
        "error": described.error,
        "num_blocks": figures.num_blocks if figures else 0,
        "tps_median": _median(figures.tps_B) if figures else None,
        "tpot_ms": _median(figures.tpot_ms_B) if figures else None,
        "tpot": None,
        "tps": None,
        "ideal": blocks.point.ideal.get(label),
    }


def _median(values_B: Array) -> float | None:
    known = values_B[np.isfinite(values_B)]
    return float(np.median(known)) if len(known) else None


def _crossings(curves: Mapping[str, _Curve], num_prompts: int) -> dict[str, Any]:
    """By figure; None below two loads, which make no curve. One prompt has no interval, as in the cells."""
    found: dict[str, Any] = {}
    for name, curve in curves.items():
        if len(curve) < 2:
            found[name] = None
            continue
        log_L = np.array([own for own, _ in curve.values()])
        log_RL = np.stack([resampled for _, resampled in curve.values()], axis=1)
        found[name] = crossing_of(log_L, list(curve), log_RL if num_prompts > 1 else None).to_dict()
    return found


def _ideal_crossing(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Where the roofline's own curve falls below 1."""
    known = {cell["load"]: cell["ideal"]["ideal_speedup"] for cell in cells if cell["tpot"] and _has_ideal(cell)}
    if len(known) < 2:
        return None
    return crossing_of(np.log(np.array(list(known.values()), dtype=float)), list(known), None).to_dict()


def _has_ideal(cell: Mapping[str, Any]) -> bool:
    return bool(cell["ideal"]) and cell["ideal"].get("ideal_speedup") is not None


def _best(
    arms: Sequence[Mapping[str, Any]], curves: Mapping[str, Mapping[str, _Curve]], loads: Sequence[int]
) -> list[dict[str, Any]]:
    """For each family and load, which of its arms (numbers of drafts) is fastest, and in which share of the
    resamples it is."""
    found = []
    for family in dict.fromkeys(arm["family"] for arm in arms):
        own = {arm["label"]: arm for arm in arms if arm["family"] == family}
        for figure in FIGURES:
            for load in loads:
                have = {label: curves[label][figure][load] for label in own if load in curves[label][figure]}
                if not have:
                    continue
                labels = list(have)
                shares = shares_best(np.stack([resampled for _, resampled in have.values()], axis=1))
                n = int(np.argmax([value for value, _ in have.values()]))
                best = {"family": family, "figure": figure, "load": load, "label": labels[n]}
                best |= {"num_drafts": own[labels[n]]["num_drafts"], "num_arms": len(have)}
                found.append({**best, "ratio": float(np.exp(have[labels[n]][0])), "share": float(shares[n])})
    return found


def _notes_of(label: str, points: Sequence[LoadPoint]) -> list[str]:
    return list(dict.fromkeys(n for p in points for arm in p.arms if arm.label == label for n in arm.notes))


def _method(counts: Sequence[int], num_prompts: int) -> str:
    """How the intervals were made, for the foot of every table."""
    blocks = " or ".join(map(str, counts)) or "0"
    text = f"95% percentile bootstrap, blocks={blocks}, {num_prompts} prompts, {NUM_RESAMPLES} resamples"
    text += "; blocks, then prompts within them, the same for an arm and no-spec"
    if counts and counts[0] < FEW_BLOCKS:
        text += f"; below {FEW_BLOCKS} blocks an interval holds little of the drift between them"
    return text
