"""The answer of a sweep in one sentence: the fastest arm at each load, and where speculation stops paying off."""

from __future__ import annotations

from collections.abc import Mapping

from specbench.harness.store.crossover_file import Crossover
from specbench.reports.experiments.crossover_table import (
    crossing_text,
    has_intervals,
    interval_text,
    no_verdict,
    ratio_text,
)

_MAX_LOADS = 5


def crossover_answer(record: Crossover, names: Mapping[str, str]) -> str:
    """`Fastest in TPOT: eagle:k=4 1.54x [1.41, 1.66] at concurrency 1, no-spec at 64. Break-even concurrency of
    eagle:k=4: 22.6 [18 to 31].`"""
    found = {load: _fastest(record, load, names) for load in record.loads}
    fastest = {load: (name, factor) for load, (name, factor) in found.items() if name}
    if not fastest:
        return "No arm can be compared with no-spec at any load."
    left_out = f", and at {len(fastest) - _MAX_LOADS} more loads" if len(fastest) > _MAX_LOADS else ""
    parts = _parts(dict(list(fastest.items())[:_MAX_LOADS]))
    winners = {label for load in fastest for label in [_winner(record, load)] if label}
    ends = [
        f"{names[arm.label]}: {crossing_text(crossing)}" + _interval(interval_text(crossing))
        for arm in record.arms
        if arm.label in winners and (crossing := arm.crossing["tpot"]) is not None and not no_verdict(arm)
    ]
    said = [f"Fastest in TPOT: {'; '.join(parts)}{left_out}."]
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


def _winner(record: Crossover, load: int) -> str | None:
    """The arm with the best speed-up; None if none was compared."""
    ratios = {
        arm.label: cell.tpot.ratio
        for arm in record.arms
        for cell in arm.points
        if cell.load == load and cell.tpot is not None and not no_verdict(arm)
    }
    return max(ratios, key=ratios.__getitem__, default=None)


def _fastest(record: Crossover, load: int, names: Mapping[str, str]) -> tuple[str, str]:
    """Its name and its factor; empty if none was compared."""
    label = _winner(record, load)
    if label is None:
        return "", ""
    arm = next(arm for arm in record.arms if arm.label == label)
    ratio = next(cell.tpot for cell in arm.points if cell.load == load)
    assert ratio is not None
    if ratio.ratio < 1:
        return f"{record.baseline} (the next is {names[label]}, {ratio_text(ratio)})", ""
    return names[label], ratio_text(ratio)
