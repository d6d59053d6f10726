"""The answer of a sweep in one sentence: the fastest arm at each load, and where speculation stops paying off."""

from __future__ import annotations

from collections.abc import Mapping

from specbench.harness.stats.crossover import Ratio
from specbench.harness.store.crossover_file import Crossover, CrossoverArm
from specbench.reports.experiments.crossover_table import (
    crossing_text,
    has_intervals,
    interval_text,
    no_verdict,
    ratio_text,
)

_MAX_LOADS, _MAX_CLOSE = 5, 2

_Compared = list[tuple[CrossoverArm, Ratio]]


def crossover_answer(record: Crossover, names: Mapping[str, str]) -> str:
    """`Fastest in TPOT: eagle:k=4 1.54x [1.41, 1.66] at concurrency 1; no arm is clearly faster than no-spec
    (eagle:k=4 1.03x [0.97, 1.09]) at concurrency 64. Break-even concurrency: eagle:k=4: 22.6 [18 to 31].`"""
    compared = {load: found for load in record.loads if (found := _compared(record, load))}
    if not compared:
        return "No arm can be compared with no-spec at any load."
    left_out = f", and at {len(compared) - _MAX_LOADS} more loads" if len(compared) > _MAX_LOADS else ""
    fastest = {load: _fastest(record, compared[load], names) for load in list(compared)[:_MAX_LOADS]}
    winners = {found[0][0].label for found in compared.values()}
    ends = [
        f"{names[arm.label]}: {crossing_text(crossing)}" + _interval(interval_text(crossing))
        for arm in record.arms
        if arm.label in winners and (crossing := arm.crossing["tpot"]) is not None
    ]
    said = [f"Fastest in TPOT: {'; '.join(_parts(fastest))}{left_out}."]
    said += [f"Break-even concurrency: {'; '.join(ends)}."] if ends else []
    if not has_intervals(record):
        said += ["All without an interval, so any of it may be noise: measure again with --num-repeats 2 or more."]
    return " ".join(said)


def _parts(fastest: Mapping[int, tuple[str, str]]) -> list[str]:
    """`eagle:k=4 1.54x at concurrency 1, 1.20x at 4`: a name once, as long as it stays the fastest."""
    parts: list[str] = []
    last = ""
    for load, (name, factor) in fastest.items():
        if name == last and factor:
            parts[-1] += f", {factor} at {load}"
        else:
            parts.append(f"{name} {factor}".strip() + f" at concurrency {load}")
        last = name
    return parts


def _interval(text: str) -> str:
    return f" [{text}]" if " to " in text else ""


def _compared(record: Crossover, load: int) -> _Compared:
    """Arms that are clearly faster than the baseline come first, then the fastest first, as in the answer of a run."""
    found = [
        (arm, cell.tpot)
        for arm in record.arms
        for cell in arm.points
        if cell.load == load and cell.tpot is not None and not no_verdict(arm)
    ]
    return sorted(found, key=lambda one: (_low(one[1]) > 1, one[1].ratio), reverse=True)


def _fastest(record: Crossover, compared: _Compared, names: Mapping[str, str]) -> tuple[str, str]:
    """Its name, and its factor with the arms that may be as fast; or that there is none, with an empty factor."""
    (best, ratio), *others = compared
    name, text = names[best.label], ratio_text(ratio)
    if all(_high(found) < 1 for _, found in compared):
        return f"{record.baseline} (the next is {name}, {text})", ""
    if _low(ratio) <= 1:
        arm, open_ratio = max(compared, key=lambda one: _high(one[1]))
        return f"no arm is clearly faster than {record.baseline} ({names[arm.label]} {ratio_text(open_ratio)})", ""
    close = [names[arm.label] for arm, found in others if _high(found) > _low(ratio)]
    near = ", ".join(close) if len(close) <= _MAX_CLOSE else f"{len(close)} other arms"
    return name, f"{text} ({near} may be as fast)" if close else text


def _low(ratio: Ratio) -> float:
    """Without an interval, the ratio itself."""
    return ratio.ratio if ratio.low is None else ratio.low


def _high(ratio: Ratio) -> float:
    return ratio.ratio if ratio.high is None else ratio.high
