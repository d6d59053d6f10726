"""Shared by both ways of measuring an A/B: the missing blocks."""

from __future__ import annotations

from specbench.harness.store.ab_record import LABELS, AbPlan
from specbench.harness.store.block_records import read_records, unrecorded
from specbench.harness.store.run_directory import RunDirectory


def missing_blocks(plan: AbPlan, directory: RunDirectory) -> list[tuple[int, tuple[str, str]]]:
    """Blocks to measure, with the order of their sides. If one side of a block is missing, both are measured again,
    since they must run back to back. A side that lost its record is missing, unless the run has none at all."""
    done = directory.done_blocks()
    done -= unrecorded(done, read_records(directory.path))
    return [(n, order) for n, order in enumerate(plan.order()) if not all((label, n) in done for label in LABELS)]
