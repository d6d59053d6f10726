"""Acceptance length by context length, and by temperature of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specbench.harness.metrics.acceptance_groups import CONTEXT, TEMPERATURE
from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import NOTHING, number, row_name
from specbench.reports.document import Table

_TABLES = {
    CONTEXT: (
        "Acceptance length by tokens of context",
        "1 + accepted drafts / verifications (and how many). Context: prompt and output before the forward.",
    ),
    TEMPERATURE: (
        "Acceptance length by temperature",
        "1 + accepted drafts / verifications (and how many). Requests of all temperatures share rounds.",
    ),
}


def group_tables(arms: Sequence[ArmSummary]) -> Iterator[Table]:
    """One table for each kind of group of which an arm has several."""
    for kind, (title, note) in _TABLES.items():
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
