"""How close each arm came to the roofline: ideal and measured round time, phase by phase, and both speed-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from specbench.harness.roofline.of_run import INSTRUMENTED, OTHER
from specbench.harness.store.crossover_file import Crossover
from specbench.harness.store.roofline_record import IdealArm, Machine, MeanRound
from specbench.reports.cells import NOTHING, factor, formatted, milliseconds, number, rates
from specbench.reports.document import Table, table_of

_PHASES = {"verify": "verify", "accept": "accept", "draft_first": "draft first", "draft_next": "draft next"}
_LEFT_OUT = (
    "The ideal leaves out host work, synchronisations and gaps; state updates between passes; activations and norms; "
    "requests that only pad a graph; and mixed steps. Caches that keep weights or keys between passes are not modelled "
    "either: a model that fits into one may exceed 100%."
)


def roofline_tables(record: Crossover, names: Mapping[str, str]) -> list[Table]:
    """A table for each load of a crossover that has ideals; notes are under the first table that needs them. `names`:
    display names of the arms, by label."""
    if record.machine is None:
        return []
    tables: list[Table] = []
    printed: set[str] = set()
    for load in record.loads:
        at = [cell.ideal for arm in record.arms for cell in arm.points if cell.load == load]
        arms = [replace(arm, label=names[arm.label]) for arm in at if arm]
        if arms:
            table = roofline_table(arms, record.machine, f"Against the roofline, concurrency {load}")
            tables.append(replace(table, notes=tuple(note for note in table.notes if note not in printed)))
            printed.update(table.notes)
    return tables


def roofline_column(arms: Sequence[IdealArm]) -> dict[str, dict[str, str]]:
    """`63%, reading weights` by arm label, under its header; empty if no arm has an ideal."""
    known = {arm.label: f"{arm.efficiency:.0%}, {arm.limit}" for arm in arms if arm.efficiency is not None}
    return {"of roofline": known} if known else {}


def roofline_table(arms: Sequence[IdealArm], machine: Machine, title: str = "") -> Table:
    """A row per arm, in order; the notes say how to read the figures, and which arms have no ideal and why."""
    notes = [
        f"machine: {machine.describe()}",
        "Times are of the mean decode round. Phases: ideal / measured; other: measured time outside these phases. "
        "efficiency: ideal / measured round. limit: what takes most of the ideal round. accept includes the target's "
        "lm_head and sampling.",
        "speed-up: tokens per second and request in decode rounds, against no-spec at its own batch and context; "
        "measured / ideal speed-up = efficiency / efficiency of no-spec.",
        _LEFT_OUT,
    ]
    knees = {f"{arm.free_rows:.0f}" for arm in arms if arm.free_rows}
    notes += [
        f"Up to {knee} rows per round (batch x (drafts + 1)), reading the target's weights takes longer than "
        "multiplying by them, so verification is almost free."
        for knee in sorted(knees)
    ]
    if any(arm.measured and arm.measured.source == INSTRUMENTED for arm in arms):
        notes.append(
            "~: the round time, split into phases in the proportions of an instrumented capture at the largest batch"
        )
    notes += [
        f"{arm.label}: its target reads {mean.experts:.1f} experts per layer, {arm.expert_bytes / 1e9:.3g} GB per pass"
        for arm in arms
        if (mean := arm.measured) and mean.experts and arm.expert_bytes
    ]
    notes += [f"{arm.label}: no ideal: {arm.unknown}" for arm in arms if arm.unknown]
    return table_of(title, _COLUMNS, arms, notes)


def _of_mean(write: Callable[[MeanRound], str]) -> Callable[[IdealArm], str]:
    return lambda arm: write(arm.measured) if arm.measured else NOTHING


def _phase(phase: str) -> Callable[[IdealArm], str]:
    """`3.491 / 4.120`; a dash if the arm does not have the phase."""

    def cell(arm: IdealArm) -> str:
        ideal, measured = arm.ideal_ms.get(phase), _measured(arm, phase)
        return f"{milliseconds(ideal)} / {measured}" if ideal or measured != NOTHING else NOTHING

    return cell


def _measured(arm: IdealArm, phase: str) -> str:
    value = arm.measured.phases_ms.get(phase) if arm.measured else None
    if not value:
        return NOTHING
    mark = "~" if arm.measured and arm.measured.source == INSTRUMENTED else ""
    return mark + milliseconds(value)


_COLUMNS: dict[str, Callable[[IdealArm], str]] = {
    "strategy": lambda arm: arm.label,
    "batch": _of_mean(lambda mean: number(mean.batch)),
    "context": _of_mean(lambda mean: f"{mean.context:,.0f}"),
    "tokens/round": _of_mean(lambda mean: f"{mean.tokens:.2f}"),
    "accepted by position": _of_mean(lambda mean: rates(mean.rates)),
    "ideal ms": lambda arm: "unknown" if arm.unknown else milliseconds(arm.ideal_round_ms),
    "measured ms": lambda arm: milliseconds(arm.measured_round_ms),
    "efficiency": lambda arm: formatted(arm.efficiency, ".0%"),
    "limit": lambda arm: arm.limit or NOTHING,
    **{f"{name} ms": _phase(phase) for phase, name in _PHASES.items()},
    "other ms": lambda arm: _measured(arm, OTHER),
    "ideal speed-up": lambda arm: factor(arm.ideal_speedup),
    "measured speed-up": lambda arm: factor(arm.measured_speedup),
}
