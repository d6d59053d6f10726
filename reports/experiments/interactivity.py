"""Matched interactivity: tokens per second of a GPU against tokens per second per user, load by load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pandas as pd

from specbench.harness.store.crossover_file import Crossover
from specbench.reports.cells import NOTHING, number
from specbench.reports.charts.chart import Axis, Chart, Styles
from specbench.reports.document import Table

PER_USER = "TPS per user"
_MAX_LEVELS, _FEW_LEVELS = 6, 3
_NEAR = 0.08, 0.1  # of the width and the height of a chart
_LADDER = [step * 10.0**power for power in range(-3, 6) for step in (1, 2.5, 5)]

Curve = Sequence[tuple[float, float]]
"""For each load of an arm, in order: TPS per user (1 / mean TPOT), and TPS of all users."""


def interactivity_frame(record: Crossover, names: Mapping[str, str]) -> pd.DataFrame:
    """series, x: TPS per user, y: TPS of all users, concurrency; a row per arm and load, medians over blocks. _near:
    the concurrency, unless the same one is already written next to a nearby point."""
    rows = [
        (names[arm.label], 1e3 / cell.tpot_ms, cell.tps_median, cell.load)
        for arm in record.arms
        for cell in sorted(arm.points, key=lambda cell: cell.load)
        if cell.tpot_ms and cell.tps_median
    ]
    frame = pd.DataFrame(rows, columns=["series", "x", "y", "concurrency"])
    width, height = (frame[axis].max() - frame[axis].min() for axis in ("x", "y"))
    written: list[int] = []
    for n, row in frame.iterrows():
        near = (abs(frame["x"] - row["x"]) <= _NEAR[0] * width) & (abs(frame["y"] - row["y"]) <= _NEAR[1] * height)
        if not (near & (frame["concurrency"] == row["concurrency"])).loc[written].any():
            written.append(n)
    return frame.assign(_near=frame["concurrency"].where(frame.index.isin(written)))


def interactivity_chart(record: Crossover, names: Mapping[str, str], styles: Styles, name: str) -> Chart:
    """Has no rows if no arm has two loads, which a line needs."""
    frame = interactivity_frame(record, names)
    frame = frame if frame["series"].duplicated().any() else frame.iloc[:0]
    return Chart(
        name=name,
        title=f"{PER_USER} against {_of_all(record)}",
        description="One point per load, with its concurrency; further up and right is better. At the same "
        f"{PER_USER} the upper line serves more users.",
        frame=frame,
        x=Axis(title=f"{PER_USER} (1 / mean TPOT)"),
        y=Axis(title=_of_all(record)),
        marks="lines",
        along="concurrency",
        words="_near",
        styles=styles.of(frame["series"]),
    )


def interactivity_table(record: Crossover, names: Mapping[str, str]) -> Table | None:
    """The total TPS of each arm at the same TPS per user. None if no arm has two loads."""
    frame = interactivity_frame(record, names)
    curves: dict[str, Curve] = {
        arm.label: list(zip(own["x"], own["y"], strict=True))
        for arm in record.arms
        if len(own := frame[frame["series"] == names[arm.label]]) > 1
    }
    if not curves:
        return None
    bases = {_engine(label): curve for label, curve in curves.items() if record.is_baseline(label)}
    first = next(iter(bases.values()), ())
    speeds = [speed for curve in curves.values() for speed, _ in curve]
    wanted = levels(min(speeds), max(speeds))
    rows = [
        (names[label], *(_cell(curve, bases.get(_engine(label), first), level) for level in wanted))
        for label, curve in curves.items()
    ]
    ranges = [f"{names[label]} {number(min(c)[0])} to {number(max(c)[0])}" for label, c in curves.items()]
    against = f"{record.baseline} of its engine" if len(bases) > 1 else record.baseline
    notes = (
        f"{_of_all(record)} by linear interpolation between neighbouring loads, medians over blocks; (x): against "
        f"{against} at the same {PER_USER}. -: outside the measured range ({PER_USER}): {', '.join(ranges)}.",
    )
    headers = ("strategy", *(f"{level:g} {PER_USER}" for level in wanted))
    return Table(title=f"{_of_all(record)} at the same interactivity", headers=headers, rows=tuple(rows), notes=notes)


def levels(low: float, high: float) -> list[float]:
    """A few round values from `low` to `high`: some of 25, 50, 100, ..., or evenly spaced if those are too few."""
    found = [level for level in _LADDER if low <= level <= high]
    if len(found) < _FEW_LEVELS and high > low:
        most = (high - low) / _FEW_LEVELS
        step = max(own for rung in _LADDER for own in (rung, 2 * rung) if own <= most)
        found = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return found[-_MAX_LEVELS:]


def at(curve: Curve, level: float) -> float | None:
    """Total TPS at this TPS per user: the best interpolation between measured points; None outside them."""
    found = []
    for (x0, y0), (x1, y1) in pairwise(curve):
        if min(x0, x1) <= level <= max(x0, x1):
            found.append(max(y0, y1) if x0 == x1 else y0 + (y1 - y0) * (level - x0) / (x1 - x0))
    return max(found, default=None)


def _engine(label: str) -> str:
    """The prefix of an arm of another engine, `vllm` of `vllm/eagle:k=4`; empty for our own."""
    return label.partition(":")[0].rpartition("/")[0]


def _cell(curve: Curve, base: Curve, level: float) -> str:
    own, other = at(curve, level), at(base, level)
    if own is None:
        return NOTHING
    return number(own) if other is None or curve is base else f"{number(own)} ({own / other:.2f}x)"


def _of_all(record: Crossover) -> str:
    """The hardware's name shows whether there is one GPU; with several, the number that an arm used is unknown."""
    return "TPS per GPU" if record.hardware.startswith("1x ") else "TPS of all users"
