"""A whole crossover: every arm at every load against no speculation, its break-even concurrency, and the best arm.

The runs differ only in their load: those of a sweep, and others that happen to form a curve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from specbench.harness.judge.crossover_samples import LoadPoint, PointBlocks, paired_blocks, point_blocks
from specbench.harness.metrics.figures import TPOT_MS, TPS
from specbench.harness.metrics.latency import measured
from specbench.harness.registry import BASELINE
from specbench.harness.stats.crossover import (
    Array,
    BreakEven,
    Draws,
    PairedBlocks,
    Ratio,
    crossing_of,
    draw,
    log_tpot,
    log_tps,
    once,
    ratio_of,
    shares_best,
)
from specbench.harness.stats.spread import NUM_RESAMPLES
from specbench.harness.store.arm_record import driven_otherwise
from specbench.harness.store.crossover_file import NO_VERDICT, BestArm, Crossover, CrossoverArm, LoadCell

FIGURES = {"tpot": TPOT_MS, "tps": TPS}
FEW_BLOCKS = 6

_Curve = dict[int, tuple[float, Array]]  # by load: ln of the speed-up, and of its resamples [R]


def crossover_record(
    points: Sequence[LoadPoint], families: Mapping[str, tuple[str, int | None]] | None = None
) -> Crossover:
    """`points`: if two have the same load and arm, the first is used. `families`: by arm label, its family and its
    number of drafts, which is what arms of one family differ in."""
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
        crossing = {name: _crossing(curve, _have_intervals(cells, name)) for name, curve in curves[label].items()}
        notes = [note for point in points for arm in point.arms if arm.label == label for note in arm.notes]
        if why := next(filter(None, (_driven_otherwise(label, own) for own in blocks)), ""):
            crossing = dict.fromkeys(crossing)
            notes.append(NO_VERDICT + why)
        arms.append(
            CrossoverArm(
                label=label,
                family=family,
                num_drafts=num_drafts,
                notes=tuple(dict.fromkeys(notes)),
                points=tuple(cells),
                crossing={**crossing, "ideal": _ideal_crossing(cells)},
            )
        )
    return Crossover(
        baseline=BASELINE,
        loads=tuple(loads),
        num_blocks=num_blocks,
        num_prompts=len(prompts),
        method=_method(sorted(set(num_blocks.values())), len(prompts)),
        arms=tuple(arms),
        best=tuple(_best(arms, curves, loads)),
        sweep_id="",
        status="complete",
        command="",
    )


def _arm(
    label: str, blocks: Sequence[PointBlocks], loads: Sequence[int], draws: Draws | None
) -> tuple[list[LoadCell], dict[str, _Curve]]:
    """A cell per load (from the newest run that has the arm there), and the curves of both figures."""
    cells: list[LoadCell] = []
    curves: dict[str, _Curve] = {name: {} for name in FIGURES}
    for load in loads:
        own = _blocks_of(label, load, blocks)
        if own is None:
            continue
        ratios: dict[str, Ratio] = {}
        pairs = _pairs(label, own)
        if pairs is not None and draws is not None:
            is_resampled = draws.prompts_RP.shape[1] > 1 and np.isfinite(pairs.log_tps_B).sum() > 1
            for name, (value, found) in _figures(pairs, draws, draws.blocks_RB[own.point.run_id]).items():
                if np.isfinite(value):
                    curves[name][load] = (value, found)
                    ratios[name] = ratio_of(value, found if is_resampled else None)
        cells.append(_cell(label, own, ratios))
    return cells, curves


def _figures(pairs: PairedBlocks, draws: Draws, blocks_RB: Array) -> dict[str, tuple[float, Array]]:
    """By name: ln of the speed-up, and of its resamples [R]."""
    blocks_1B, prompts_1P = once(pairs.num_blocks, draws.prompts_RP.shape[1])
    return {
        "tpot": (float(log_tpot(pairs, blocks_1B, prompts_1P)[0]), log_tpot(pairs, blocks_RB, draws.prompts_RP)),
        "tps": (float(log_tps(pairs, blocks_1B)[0]), log_tps(pairs, blocks_RB, draws.order_RN)),
    }


def _blocks_of(label: str, load: int, blocks: Sequence[PointBlocks]) -> PointBlocks | None:
    """The first run that measured the arm, else the first that has it."""
    at_load = (own for own in blocks if own.point.load == load)
    having = [own for own in at_load if any(arm.label == label for arm in own.point.arms)]
    return next((own for own in having if label in own.arms), having[0] if having else None)


def _driven_otherwise(label: str, blocks: PointBlocks) -> str:
    """Why the arm's speed-ups give no verdict at this load; empty if they do."""
    described = {arm.label: arm for arm in blocks.point.arms}
    baseline = blocks.baseline(label)
    if baseline is None or label not in described:
        return ""
    return driven_otherwise(described[baseline], described[label])


def _pairs(label: str, blocks: PointBlocks) -> PairedBlocks | None:
    baseline = blocks.baseline(label)
    if baseline is None or baseline == label or label not in blocks.arms:
        return None
    return paired_blocks(blocks.arms[label], blocks.arms[baseline], blocks.point.load)


def _cell(label: str, blocks: PointBlocks, ratios: Mapping[str, Ratio]) -> LoadCell:
    described = next(arm for arm in blocks.point.arms if arm.label == label)
    figures = blocks.arms.get(label)
    return LoadCell(
        load=blocks.point.load,
        run=blocks.point.run_id,
        status=described.status,
        error=described.error,
        num_blocks=figures.num_blocks if figures else 0,
        tps_median=_median(figures.tps_B) if figures else None,
        tpot_ms=_median(figures.tpot_ms_B) if figures else None,
        tpot=ratios.get("tpot"),
        tps=ratios.get("tps"),
        ideal=blocks.point.ideal.get(label),
        doubts=blocks.point.doubts.get(label, ()),
    )


def _median(values_B: Array) -> float | None:
    known = values_B[np.isfinite(values_B)]
    return float(np.median(known)) if len(known) else None


def _crossing(curve: _Curve, has_interval: bool) -> BreakEven | None:
    """None below two loads, which do not form a curve. A single prompt or block has no interval, as in the cells."""
    if len(curve) < 2:
        return None
    log_L = np.array([own for own, _ in curve.values()])
    log_RL = np.stack([resampled for _, resampled in curve.values()], axis=1)
    return crossing_of(log_L, list(curve), log_RL if has_interval else None)


def _have_intervals(cells: Sequence[LoadCell], figure: str) -> bool:
    """Whether every one of these speed-ups was resampled."""
    return all(found.low is not None for cell in cells if (found := cell.speedup(figure)))


def _ideal_crossing(cells: Sequence[LoadCell]) -> BreakEven | None:
    """Where the roofline's curve falls below 1."""
    ideals = {cell.load: cell.ideal.ideal_speedup for cell in cells if cell.tpot and cell.ideal}
    known = {load: speedup for load, speedup in ideals.items() if speedup is not None}
    if len(known) < 2:
        return None
    return crossing_of(np.log(np.array(list(known.values()), dtype=float)), list(known), None)


def _best(
    arms: Sequence[CrossoverArm], curves: Mapping[str, Mapping[str, _Curve]], loads: Sequence[int]
) -> Iterator[BestArm]:
    """For each family and load, which of its arms (numbers of drafts) is fastest, and in which share of the
    resamples."""
    for family in dict.fromkeys(arm.family for arm in arms):
        own = {arm.label: arm for arm in arms if arm.family == family}
        for figure in FIGURES:
            for load in loads:
                have = {label: curves[label][figure][load] for label in own if load in curves[label][figure]}
                if not have:
                    continue
                labels = list(have)
                cells = [cell for label in have for cell in own[label].points if cell.load == load]
                shares = shares_best(np.stack([resampled for _, resampled in have.values()], axis=1))
                n = int(np.argmax([value for value, _ in have.values()]))
                yield BestArm(
                    family=family,
                    figure=figure,
                    load=load,
                    label=labels[n],
                    num_drafts=own[labels[n]].num_drafts,
                    num_arms=len(have),
                    ratio=float(np.exp(have[labels[n]][0])),
                    share=float(shares[n]) if _have_intervals(cells, figure) else None,
                )


def _method(counts: Sequence[int], num_prompts: int) -> str:
    """How the intervals were made, for the note below each table."""
    blocks = " or ".join(map(str, counts)) or "0"
    text = f"95% percentile bootstrap, blocks={blocks}, {num_prompts} prompts, {NUM_RESAMPLES} resamples"
    text += "; blocks, then prompts within them, the same for an arm and no-spec"
    if counts and counts[0] == 1:
        text += "; one block has no interval: nothing shows how blocks differ"
    elif counts and counts[0] < FEW_BLOCKS:
        text += f"; below {FEW_BLOCKS} blocks an interval holds little of the drift between them"
    return text
