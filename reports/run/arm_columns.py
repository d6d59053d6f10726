"""The columns available to tables of recipes and ablations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specbench.harness.metrics.figures import ACCEPTANCE_LENGTH, SAME_OUTPUT, STEP_MS, SYNCS_PER_ROUND, TPOT_MS, TPS
from specbench.harness.metrics.speedup import Ratio, block_ratio, speedup
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.results import ArmSummary, Speedup
from specbench.reports.cells import (
    NOTHING,
    TOO_WIDE,
    acceptance_length,
    is_no_figure,
    median,
    median_ms,
    percent,
    share,
    tps_spread,
    with_interval,
)
from specbench.reports.run.view import RunView


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What a cell may need. `arm`: the arm's figures, None if it is not in the run."""

    view: RunView
    arm: ArmSummary | None
    baseline: ArmSummary | None

    @property
    def entry(self) -> ArmRecord | None:
        """The arm's record in the run."""
        return next((a for a in self.view.record.arms if self.arm and a.label == self.arm.label), None)

    @property
    def compared(self) -> Speedup | None:
        """None if a side has no figures, or for the baseline itself."""
        arm, baseline = self.arm, self.baseline
        if arm is None or baseline is None or self.is_baseline or not (arm.num_repeats and baseline.num_repeats):
            return None
        return speedup(arm.label, baseline.label, self.view.values, self.view.requests)

    def ratio(self, name: str) -> Ratio | None:
        """The ratio of the block figure `name`, arm over baseline."""
        if self.arm is None or self.baseline is None:
            return None
        return block_ratio(name, self.arm.label, self.baseline.label, self.view.values)

    @property
    def is_baseline(self) -> bool:
        return self.arm is not None and self.baseline is not None and self.arm.label == self.baseline.label


Cell = Callable[[Row], str]


def _switch(name: str) -> Cell:
    return lambda row: text(getattr(row.entry.config, name) if row.entry else None)


def _graph_part(name: str) -> Cell:
    return lambda row: text(getattr(row.entry.graph_parts, name) if row.entry and row.entry.graph_parts else None)


def _of_arm(cell: Callable[[ArmSummary], str]) -> Cell:
    return lambda row: cell(row.arm) if row.arm else NOTHING


def _ratio(name: str) -> Cell:
    return lambda row: speedup_text(row.ratio(name), row.is_baseline)


def text(value: str | float | None) -> str:
    return NOTHING if value is None else str(value)


def _tpot_change(row: Row) -> str:
    """`-2.3% [-2.9%, -1.8%]`: the change of TPOT, negative is faster; the interval is that of `Speedup.tpot_ratio`."""
    if row.is_baseline:
        return "baseline"
    compared = row.compared
    if compared is None or compared.tpot_ratio is None:
        return NOTHING
    low, high = compared.tpot_ratio_low, compared.tpot_ratio_high
    if is_no_figure(low, high):
        return TOO_WIDE
    return with_interval(lambda ratio: percent(1 / ratio - 1), compared.tpot_ratio, high, low)


def _round_change(row: Row) -> str:
    return "baseline" if row.is_baseline else change(row.ratio(STEP_MS.block))


def _same_output(row: Row) -> str:
    compared = row.compared
    return share(compared.same_output_rate if compared else None)


def speedup_text(measured: Ratio | None, is_baseline: bool) -> str:
    """`1.14x (1.13 to 1.15)`; the baseline is 1.00x."""
    return "1.00x" if is_baseline else _with_extremes(measured, lambda ratio: f"{ratio:.2f}", "x")


def change(measured: Ratio | None) -> str:
    """A ratio as a change: `-2.3% (-2.9% to -1.8%)`."""
    return _with_extremes(measured, lambda ratio: percent(ratio - 1))


def _with_extremes(measured: Ratio | None, write: Callable[[float], str], unit: str = "") -> str:
    if measured is None:
        return NOTHING
    shown = write(measured.ratio) + unit
    if measured.min is None or measured.max is None or measured.min == measured.max:
        return shown
    return f"{shown} ({write(measured.min)} to {write(measured.max)})"


COLUMNS: dict[str, tuple[str, Cell]] = {
    "engine": ("engine", _switch("engine")),
    "driven": ("driven", _switch("driven")),
    "attention": ("attention", _switch("attention")),
    "attention_drafter": ("drafter's attention", _switch("attention_drafter")),
    "drafter": ("drafter batch", _switch("drafter")),
    "sync": ("sync", _switch("sync")),
    "state_update": ("state update", _switch("state_update")),
    "k": ("K", _switch("num_drafts")),
    "graph": ("graph", _switch("graph")),
    "graph_target": ("target graph", _graph_part("target")),
    "graph_first": ("first drafter pass", _graph_part("first")),
    "graph_later": ("later passes", _graph_part("later")),
    "graph_mixed": ("mixed steps", _graph_part("mixed")),
    "tps": (TPS.name, _of_arm(median(TPS.block))),
    "factor": ("speed-up", _ratio(TPS.block)),
    "requests_per_s": ("requests/s", _of_arm(median("requests_per_s"))),
    "factor_requests": ("speed-up", _ratio("requests_per_s")),
    "spread": ("spread", _of_arm(tps_spread)),
    "tpot_ms": (TPOT_MS.heading, _of_arm(median_ms(TPOT_MS.block))),
    "tpot_delta": ("TPOT change [95% CI]", _tpot_change),
    "round_ms": ("round p50 ms", _of_arm(median_ms(STEP_MS.block))),
    "round_change": ("round change", _round_change),
    "gap_ms": ("gap mean ms", _of_arm(median_ms("gap_ms.mean"))),
    "syncs": (SYNCS_PER_ROUND.name, _of_arm(median(SYNCS_PER_ROUND.block))),
    "rows": ("target rows/round", _of_arm(median("rows_per_round"))),
    "draft_rows": ("drafter rows/round", _of_arm(median("draft_rows_per_round"))),
    "acceptance_length": (f"{ACCEPTANCE_LENGTH.name} [95% CI]", _of_arm(lambda arm: acceptance_length(arm.acceptance))),
    "same_output": (SAME_OUTPUT.name, _same_output),
}
