"""The table of a recipe: its columns, what its source claims beside what was measured, and why they differ.

The record of such a run holds the report that the recipe asked for and its rows, each with the label of
the arm that was measured for it. A row is compared with the nearest row above it that is a baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specbench.harness.metrics.figures import ACCEPTANCE_LENGTH, SAME_OUTPUT, SYNCS_PER_ROUND, TPOT_MS, TPS
from specbench.harness.spec.table_records import RecipeRecord
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.results import ArmSummary, Speedup
from specbench.harness.text import nearest
from specbench.reports.cells import NOTHING, acceptance_length, milliseconds, number, row_name, tps_spread
from specbench.reports.document import Table
from specbench.reports.run.ratios import against, factor, ratio, tpot_change
from specbench.reports.run.view import RunView

CLAIM = "claim:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What a cell may need: the arm's figures (None: not in the run), its entry in the record, and the comparison."""

    view: RunView
    arm: ArmSummary | None
    entry: ArmRecord | None
    baseline: ArmSummary | None
    compared: Speedup | None
    claim: Mapping[str, str | float]

    @property
    def is_baseline(self) -> bool:
        return self.arm is not None and self.baseline is not None and self.arm.label == self.baseline.label


Cell = Callable[[Row], str]


def _switch(name: str) -> Cell:
    return lambda row: _text(getattr(row.entry.config, name) if row.entry else None)


def _graph_part(name: str) -> Cell:
    return lambda row: _text(getattr(row.entry.graph_parts, name) if row.entry and row.entry.graph_parts else None)


def _median(name: str) -> Cell:
    return lambda row: number(row.arm.median(name) if row.arm else None)


def _ms(name: str) -> Cell:
    return lambda row: milliseconds(row.arm.median(name) if row.arm else None)


def _ratio(name: str) -> Cell:
    return lambda row: factor(ratio(row.view, name, row.arm, row.baseline), row.is_baseline)


def _text(value: str | float | None) -> str:
    return NOTHING if value is None else str(value)


def _acceptance(row: Row) -> str:
    return acceptance_length(row.arm.acceptance if row.arm else None)


def _same_output(row: Row) -> str:
    rate = row.compared.same_output_rate if row.compared else None
    return NOTHING if rate is None else f"{rate:.0%}"


COLUMNS: dict[str, tuple[str, Cell]] = {
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
    "tps": (TPS.name, _median(TPS.block)),
    "factor": ("factor", _ratio(TPS.block)),
    "requests_per_s": ("requests/s", _median("requests_per_s")),
    "factor_requests": ("factor", _ratio("requests_per_s")),
    "spread": ("spread", lambda row: tps_spread(row.arm) if row.arm else NOTHING),
    "tpot_ms": (TPOT_MS.heading, _ms(TPOT_MS.block)),
    "tpot_delta": ("TPOT change [95% CI]", lambda row: "baseline" if row.is_baseline else tpot_change(row.compared)),
    "round_ms": ("round p50 ms", _ms("round_ms.p50")),
    "gap_ms": ("gap mean ms", _ms("gap_ms.mean")),
    "syncs": (SYNCS_PER_ROUND.name, _median(SYNCS_PER_ROUND.block)),
    "rows": ("target rows/round", _median("rows_per_round")),
    "draft_rows": ("drafter rows/round", _median("draft_rows_per_round")),
    "acceptance_length": (f"{ACCEPTANCE_LENGTH.name} [95% CI]", _acceptance),
    "same_output": (SAME_OUTPUT.name, _same_output),
}
DEFAULT_COLUMNS = ("tps", "factor", "spread", "tpot_ms", "tpot_delta", "syncs", "acceptance_length")


def check_columns(names: Sequence[str]) -> None:
    """ValueError for a column that is not known; `claim:KEY` shows a key of the arms' `claim` tables."""
    for name in names:
        if name not in COLUMNS and not (name.startswith(CLAIM) and name != CLAIM):
            allowed = f"{', '.join(COLUMNS)}, {CLAIM}KEY"
            raise ValueError(f"report.columns: {name!r} is not known{nearest(name, COLUMNS)}; allowed: {allowed}")


def recipe_table(view: RunView) -> Table | None:
    """The table of a run's recipe; None for a run without one."""
    recipe = view.record.purpose.recipe
    if recipe is None:
        return None
    names: Sequence[str] = recipe.report.columns or DEFAULT_COLUMNS
    claimed = {key for row in recipe.rows for key in row.claim}
    names = [name for name in names if not name.startswith(CLAIM) or name.removeprefix(CLAIM) in claimed]
    arms = {arm.label: arm for arm in view.arms}
    entries = {entry.label: entry for entry in view.record.arms}
    rows, baseline = [], arms.get(recipe.rows[0].label)
    for asked in recipe.rows:
        arm = arms.get(asked.label)
        baseline = arm if asked.baseline else baseline
        row = Row(
            view=view,
            arm=arm,
            entry=entries.get(asked.label),
            baseline=baseline,
            compared=against(view, arm, baseline),
            claim=asked.claim,
        )
        rows.append((_name(asked.name, arm), *(_cell(name, row) for name in names)))
    return Table(
        title=recipe.report.title or recipe.name,
        headers=("arm", *(_header(name) for name in names)),
        rows=tuple(rows),
        notes=tuple(_notes(view, recipe, names)),
    )


def _name(name: str, arm: ArmSummary | None) -> str:
    """With what must not be missed beside a figure: forced acceptance, failure."""
    if arm is None:
        return name
    status = "" if arm.status == "ok" else f" ({arm.status})"
    return name + row_name(arm).removeprefix(arm.label) + status


def _cell(name: str, row: Row) -> str:
    if name.startswith(CLAIM):
        return _text(row.claim.get(name.removeprefix(CLAIM)))
    return COLUMNS[name][1](row)


def _header(name: str) -> str:
    return f"claimed {name.removeprefix(CLAIM).replace('_', ' ')}" if name.startswith(CLAIM) else COLUMNS[name][0]


def _notes(view: RunView, recipe: RecipeRecord, names: Sequence[str]) -> list[str]:
    claim = recipe.report.claim
    notes = []
    if claim:
        notes.append("claimed: " + "; ".join(f"{claim[k]}" for k in ("source", "hardware", "setup") if claim.get(k)))
    if "factor" in names or "factor_requests" in names:
        notes.append("factor: against the nearest baseline above, ratio of medians (least to most within a repeat).")
    if "tpot_delta" in names:
        notes.append("TPOT change: paired by prompt and repeat, geometric mean; bootstrap over prompts.")
    if view.record.purpose.acceptance:
        notes.append(view.record.purpose.acceptance)
    return [*notes, *recipe.notes, *recipe.report.notes]
