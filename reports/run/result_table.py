"""A finished table: what to print, whoever prints it; and the cells that tables of comparisons share."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.metrics.speedup import speedup
from specbench.harness.store.results import ArmSummary, Speedup
from specbench.reports.cells import NOTHING, percent
from specbench.reports.run.view import RunView


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultTable:
    """Cells as text, row by row, the first column a name; `notes` stand below, a line each."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def against(view: RunView, arm: ArmSummary | None, baseline: ArmSummary | None) -> Speedup | None:
    """`arm` against `baseline` of the same run; None where either has no figures, or for the baseline itself."""
    if arm is None or baseline is None or arm.label == baseline.label or not (arm.num_repeats and baseline.num_repeats):
        return None
    values = {block: figures.values for block, figures in view.blocks.items()}
    return speedup(arm.label, baseline.label, values, view.requests)


def tpot_delta(compared: Speedup | None) -> str:
    """`-2.3% [-2.9%, -1.8%]`: what TPOT changed by, negative is faster; the interval of `Speedup.tpot_ratio`."""
    if compared is None or compared.tpot_ratio is None:
        return NOTHING
    text = percent(1 / compared.tpot_ratio - 1)
    if compared.tpot_ratio_low is None or compared.tpot_ratio_high is None:
        return text
    return f"{text} [{percent(1 / compared.tpot_ratio_high - 1)}, {percent(1 / compared.tpot_ratio_low - 1)}]"


def block_ratio(
    view: RunView, name: str, arm: ArmSummary | None, base: ArmSummary | None
) -> tuple[float, float | None, float | None] | None:
    """(ratio of medians, least, most within a repeat) of a figure of blocks, arm over base; None without both."""
    if arm is None or base is None:
        return None
    sides = [
        {
            repeat: value
            for (label, repeat), block in view.blocks.items()
            if label == side.label and (value := block.values.get(name))
        }
        for side in (arm, base)
    ]
    if not sides[0] or not sides[1]:
        return None
    medians = [sorted(values.values()) for values in sides]
    ratios = [sides[0][r] / sides[1][r] for r in sides[0] if r in sides[1]]
    middle = [_median(values) for values in medians]
    return middle[0] / middle[1], min(ratios, default=None), max(ratios, default=None)


def _median(ordered: list[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def factor(found: tuple[float, float | None, float | None] | None, is_baseline: bool) -> str:
    """`1.14x (1.13 to 1.15)`; the baseline is 1.00x."""
    if is_baseline:
        return "1.00x"
    if found is None:
        return NOTHING
    ratio, least, most = found
    ends = "" if least is None or least == most else f" ({least:.2f} to {most:.2f})"
    return f"{ratio:.2f}x{ends}"


def change(found: tuple[float, float | None, float | None] | None) -> str:
    """A ratio as a change: `-2.3% (-2.9% to -1.8%)`."""
    if found is None:
        return NOTHING
    ratio, least, most = found
    ends = "" if least is None or least == most else f" ({percent(least - 1)} to {percent((most or 0) - 1)})"
    return percent(ratio - 1) + ends
