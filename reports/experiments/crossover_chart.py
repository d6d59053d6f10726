"""A crossover as a chart: measured speed-up by load with its interval, and the ideal of the roofline, dashed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from specbench.harness.store.crossover_file import Crossover
from specbench.reports.charts.chart import Axis, Chart, Styles, small_charts
from specbench.reports.experiments.crossover_table import FIGURE_NAMES

IDEAL = ", ideal"
_COLUMNS = ["series", "x", "y", "low", "high", "dashed", "note"]


def crossover_frame(record: Crossover, names: Mapping[str, str], figure: str = "tpot") -> pd.DataFrame:
    """Columns: series, x (concurrency), y (speed-up) with its interval; facet: the arm, if there are many lines. Names
    of ideals end in IDEAL. `names`: what to call the arms, by label."""
    other = "tps" if figure == "tpot" else "tpot"
    rows: list[tuple[object, ...]] = []
    for arm in sorted(record.arms, key=lambda arm: names[arm.label]):
        name, cells = names[arm.label], [(cell, ratio) for cell in arm.points if (ratio := cell.speedup(figure))]
        for cell, ratio in cells:
            beside = cell.speedup(other)
            note = "measured" + (f"; {FIGURE_NAMES[other]} {beside.ratio:.2f}x" if beside else "")
            rows.append((name, cell.load, ratio.ratio, ratio.low, ratio.high, False, note))
        note = "ideal: by the machine's limits"
        rows += [
            (name + IDEAL, cell.load, cell.ideal.ideal_speedup, math.nan, math.nan, True, note)
            for cell, _ in cells
            if cell.ideal and cell.ideal.ideal_speedup is not None
        ]
    frame = pd.DataFrame(rows, columns=_COLUMNS).astype({"low": float, "high": float, "dashed": bool})
    frame = small_charts(frame, IDEAL)
    return frame if frame["dashed"].any() else frame.drop(columns="dashed")


def crossover_chart(
    record: Crossover, names: Mapping[str, str], styles: Styles, name: str, figure: str = "tpot"
) -> Chart:
    """The chart of one figure; the ideal has the colour and shape of its arm."""
    frame = crossover_frame(record, names, figure)
    ideal = " Dashed: the ideal of decode rounds, by the machine's limits (roofline)." if "dashed" in frame else ""
    series = dict.fromkeys(frame["series"])
    looks = styles.of(one for one in series if not one.endswith(IDEAL))
    word = FIGURE_NAMES[figure]
    return Chart(
        name=name,
        title=f"Speed-up of {word} against no-spec by concurrency",
        description=f"Above the line at 1 speculation is faster. Bars: 95% interval over blocks and prompts.{ideal}",
        frame=frame,
        x=Axis(title="concurrency (log scale)", scale="log2"),
        y=Axis(title=f"speed-up of {word}", unit="factor"),
        marks="lines",
        rule=1.0,
        styles={one: looks[one.removesuffix(IDEAL)] for one in series},
    )
