"""The table of a recipe: its columns, the source's claims next to the measurements, and why they differ.

The record of such a run has the recipe's report and its rows, each with the label of the arm that was measured for it.
A row is compared with the nearest baseline row above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specbench.harness.spec.table_records import RecipeRecord
from specbench.harness.store.results import ArmSummary
from specbench.harness.text import nearest
from specbench.reports.cells import row_name
from specbench.reports.document import Table
from specbench.reports.run.arm_columns import COLUMNS, Row, text
from specbench.reports.run.view import RunView

CLAIM = "claim:"
_CLAIMED = {"tps": "TPS", "tpot": "TPOT", "req_s": "requests/s"}  # keys of claims, as other columns spell them
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
    rows, baseline = [], arms.get(recipe.rows[0].label)
    for requested in recipe.rows:
        arm = arms.get(requested.label)
        baseline = arm if requested.baseline else baseline
        row = Row(view=view, arm=arm, baseline=baseline)
        rows.append((_name(requested.name, arm), *(_cell(name, row, requested.claim) for name in names)))
    return Table(
        title=recipe.report.title or recipe.name,
        headers=("arm", *(_header(name) for name in names)),
        rows=tuple(rows),
        notes=tuple(_notes(view, recipe, names)),
    )


def _name(name: str, arm: ArmSummary | None) -> str:
    """The label with what must accompany every figure: forced acceptance, failure."""
    if arm is None:
        return name
    status = "" if arm.status == "ok" else f" ({arm.status})"
    return name + row_name(arm).removeprefix(arm.label) + status


def _cell(name: str, row: Row, claim: Mapping[str, str | float]) -> str:
    if name.startswith(CLAIM):
        return text(claim.get(name.removeprefix(CLAIM)))
    return COLUMNS[name][1](row)


def _header(name: str) -> str:
    if not name.startswith(CLAIM):
        return COLUMNS[name][0]
    key = name.removeprefix(CLAIM)
    return f"claimed {_CLAIMED.get(key, key.replace('_', ' '))}"


def _notes(view: RunView, recipe: RecipeRecord, names: Sequence[str]) -> list[str]:
    claim = recipe.report.claim
    notes = []
    if claim:
        notes.append("claimed: " + "; ".join(f"{claim[k]}" for k in ("source", "hardware", "setup") if claim.get(k)))
    if "factor" in names or "factor_requests" in names:
        notes.append("speed-up: against the nearest baseline above, ratio of medians (min to max of the repeats).")
    if "tpot_delta" in names:
        notes.append("TPOT change: paired by prompt and repeat, geometric mean; bootstrap over blocks and prompts.")
    if view.record.purpose.acceptance:
        notes.append(view.record.purpose.acceptance)
    return [*notes, *recipe.notes, *recipe.report.notes]
