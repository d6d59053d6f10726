"""An arm compared with another of its run, as text."""

from __future__ import annotations

from collections.abc import Callable

from specbench.harness.metrics.speedup import Ratio, block_ratio, speedup
from specbench.harness.store.results import ArmSummary, Speedup
from specbench.reports.cells import NOTHING, TOO_WIDE, is_no_figure, percent
from specbench.reports.run.view import RunView

TPOT_RATIO = "TPOT ratio [95% CI]"


def against(view: RunView, arm: ArmSummary | None, baseline: ArmSummary | None) -> Speedup | None:
    """`arm` against `baseline` of the same run; None if either has no figures, or for the baseline itself."""
    if arm is None or baseline is None or arm.label == baseline.label or not (arm.num_repeats and baseline.num_repeats):
        return None
    return speedup(arm.label, baseline.label, view.values, view.requests)


def ratio(view: RunView, name: str, arm: ArmSummary | None, baseline: ArmSummary | None) -> Ratio | None:
    """The ratio of the block figure `name`, arm over baseline."""
    return block_ratio(name, arm.label, baseline.label, view.values) if arm and baseline else None


def tpot_change(compared: Speedup | None) -> str:
    """`-2.3% [-2.9%, -1.8%]`: the change of TPOT, negative is faster; the interval is that of `Speedup.tpot_ratio`."""
    if compared is None or compared.tpot_ratio is None:
        return NOTHING
    text = percent(1 / compared.tpot_ratio - 1)
    if compared.tpot_ratio_low is None or compared.tpot_ratio_high is None:
        return text
    if is_no_figure(compared.tpot_ratio_low, compared.tpot_ratio_high):
        return TOO_WIDE
    return f"{text} [{percent(1 / compared.tpot_ratio_high - 1)}, {percent(1 / compared.tpot_ratio_low - 1)}]"


def tpot_ratio(compared: Speedup | None) -> str:
    """`1.602 [1.521, 1.684]`: baseline / arm, above 1 the arm is faster."""
    if compared is None or compared.tpot_ratio is None:
        return NOTHING
    low, high = compared.tpot_ratio_low, compared.tpot_ratio_high
    if is_no_figure(low, high):
        return TOO_WIDE
    return f"{compared.tpot_ratio:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")


def speedup_text(measured: Ratio | None, is_baseline: bool) -> str:
    """`1.14x (1.13 to 1.15)`; the baseline is 1.00x."""
    return "1.00x" if is_baseline else _with_extremes(measured, lambda ratio: f"{ratio:.2f}", "x")


def change(measured: Ratio | None) -> str:
    """A ratio as a change: `-2.3% (-2.9% to -1.8%)`."""
    return _with_extremes(measured, lambda ratio: percent(ratio - 1))


def _with_extremes(measured: Ratio | None, write: Callable[[float], str], unit: str = "") -> str:
    if measured is None:
        return NOTHING
    text = write(measured.ratio) + unit
    if measured.min is None or measured.max is None or measured.min == measured.max:
        return text
    return f"{text} ({write(measured.min)} to {write(measured.max)})"
