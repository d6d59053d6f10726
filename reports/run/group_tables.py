"""Tables by group: by data set (for other runs by category of their questions), by context length, by temperature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specbench.harness.metrics.acceptance_groups import CONTEXT, TEMPERATURE
from specbench.harness.metrics.figures import ACCEPTANCE_LENGTH, TPOT_MS
from specbench.harness.store.results import ArmSummary, CategoryFigures
from specbench.reports.cells import NOTHING, TPOT_RATIO, acceptance_length, milliseconds, number, row_name, tpot_ratio
from specbench.reports.document import Table, table_of, with_rows
from specbench.reports.run.view import RunView


@dataclass(frozen=True, slots=True)
class _Row:
    arm: str
    figures: CategoryFigures


def category_tables(view: RunView) -> tuple[Table, ...]:
    """A row for each category and arm, the arms of one category together; none for a run that is not divided."""
    kind = "data set" if view.record.config and len(view.record.config.workload.names) > 1 else "category"
    found = [_Row(row_name(arm), figures) for arm in view.arms for figures in arm.categories]
    names = list(dict.fromkeys(row.figures.name for row in found))
    rows = sorted(found, key=lambda row: names.index(row.figures.name))
    columns: dict[str, Callable[[_Row], str]] = {kind: lambda row: row.figures.name, **_COLUMNS}
    return with_rows(table_of(f"By {kind}", columns, rows, (_NOTE.format(kind=kind),)))


def group_tables(arms: Sequence[ArmSummary]) -> Iterator[Table]:
    """One table for each kind of group of which an arm has several."""
    for kind, (title, note) in _GROUPS.items():
        found = [
            (row_name(arm), {group.name: group for group in arm.acceptance.groups if group.kind == kind})
            for arm in arms
            if arm.acceptance
        ]
        names = sorted({name for _, groups in found for name in groups}, key=lambda name: float(name.split("-")[0]))
        rows = []
        for label, groups in found if names else ():
            shown = {n: f"{number(g.acceptance_length)} ({g.num_verifications})" for n, g in groups.items()}
            rows.append((label, *(shown.get(name, NOTHING) for name in names)))
        yield Table(title=title, headers=("strategy", *names), rows=tuple(rows), notes=(note,))


_COLUMNS: dict[str, Callable[[_Row], str]] = {
    "strategy": lambda row: row.arm,
    "prompts": lambda row: str(row.figures.num_prompts),
    f"{ACCEPTANCE_LENGTH.name} [95% CI]": lambda row: acceptance_length(row.figures.acceptance),
    TPOT_MS.heading: lambda row: milliseconds(row.figures.tpot_ms),
    TPOT_RATIO: lambda row: tpot_ratio(row.figures.speedup),
}
_NOTE = (
    "AL and TPOT as in the comparison, over the prompts of one {kind}; intervals over these prompts. "
    "TPOT (x): baseline / arm on the same prompts, above 1 the arm is faster. Requests in flight together share "
    "rounds, whatever their {kind}."
)
_GROUPS = {
    CONTEXT: (
        "Acceptance length by tokens of context",
        "1 + accepted drafts / verifications (and how many). Context: prompt and output before the forward.",
    ),
    TEMPERATURE: (
        "Acceptance length by temperature",
        "1 + accepted drafts / verifications (and how many). Requests of all temperatures share rounds.",
    ),
}
