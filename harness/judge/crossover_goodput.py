"""Goodput of a crossover: the requests of each arm that met the user's limits, at every load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specbench.harness.metrics.goodput import REQUESTS_PER_S, SHARE
from specbench.harness.stats.slos import Slos
from specbench.harness.store.crossover_file import Crossover, Goodput, LoadCell
from specbench.harness.store.results import ArmSummary


def goodput_by_load(record: Crossover, arms: Mapping[tuple[str, str], ArmSummary], slos: Slos) -> Crossover:
    """`arms`: by run and label, with the goodput from `metrics.goodput`; empty without limits."""

    def cell_of(label: str, cell: LoadCell) -> LoadCell:
        arm = arms.get((cell.run, label))
        per_s, share = (arm.median(REQUESTS_PER_S), arm.median(SHARE)) if arm else (None, None)
        known = None if per_s is None or share is None else Goodput(requests_per_s=per_s, share=share)
        return replace(cell, goodput=known)

    found = tuple(replace(arm, points=tuple(cell_of(arm.label, cell) for cell in arm.points)) for arm in record.arms)
    return replace(record, arms=found, slos=slos)
