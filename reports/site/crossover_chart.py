"""A crossover as a chart: measured speed-up by load with its interval, and the ideal of the roofline, dashed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from specbench.reports.experiments.crossover_table import FIGURE_NAMES, display_names

from .plots import Lines, Style, Styles

IDEAL = ", ideal"
_MEASURED_NOTE, _IDEAL_NOTE = "measured", "ideal: what the machine's limits allow"


def crossover_frame(
    record: Mapping[str, Any], figure: str = "tpot", names: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """series, x: requests at once, y: speed-up with its interval; rows of the ideal are dashed and named so."""
    names = names or display_names(record)
    rows = []
    for arm in sorted(record["arms"], key=lambda arm: names[arm["label"]]):
        name, other = names[arm["label"]], "tps" if figure == "tpot" else "tpot"
        own = [cell for cell in arm["points"] if cell[figure]]
        for cell in own:
            ratio, beside = cell[figure], cell[other]
            word = f"{_MEASURED_NOTE}; {FIGURE_NAMES[other]} {beside['ratio']:.2f}x" if beside else _MEASURED_NOTE
            ends = {"low": _number(ratio["low"]), "high": _number(ratio["high"])}
            rows.append({"series": name, "x": cell["load"], "y": ratio["ratio"], **ends, "dashed": False, "note": word})
        for cell in own:
            ideal = (cell["ideal"] or {}).get("ideal_speedup")
            if ideal is not None:
                ends = {"low": math.nan, "high": math.nan}
                row = {"series": name + IDEAL, "x": cell["load"], "y": ideal, **ends, "dashed": True}
                rows.append({**row, "note": _IDEAL_NOTE})
    frame = pd.DataFrame(rows, columns=["series", "x", "y", "low", "high", "dashed", "note"])
    return frame if frame["dashed"].any() else frame.drop(columns="dashed")


def crossover_lines(
    record: Mapping[str, Any],
    styles: Styles,
    name: str,
    figure: str = "tpot",
    names: Mapping[str, str] | None = None,
) -> Lines:
    """The chart of one figure."""
    frame = crossover_frame(record, figure, names)
    dashed = " Dashed: the ideal of decode rounds, by the machine's limits (roofline)." if "dashed" in frame else ""
    word = FIGURE_NAMES[figure]
    return Lines(
        name=name,
        title=f"Speed-up of {word} against no-spec by requests at once",
        description=f"Above the line at 1 speculation pays. Bars: 95% interval over blocks and prompts.{dashed}",
        frame=frame,
        x_title="requests at once",
        y_title=f"speed-up of {word}",
        styles=_styles_of(frame, styles),
        scale="log2",
        reference=1.0,
    )


def _styles_of(frame: pd.DataFrame, styles: Styles) -> dict[str, Style]:
    """The ideal in the colour and shape of its arm."""
    measured = [name for name in dict.fromkeys(frame["series"]) if not name.endswith(IDEAL)]
    found = styles.of(measured)
    return {name: found[name.removesuffix(IDEAL)] for name in dict.fromkeys(frame["series"])}


def _number(value: float | None) -> float:
    return math.nan if value is None else value
