"""Shared by both ways of measuring an A/B: the record of each block beside the raw tables, and the missing blocks."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.store.ab_record import LABELS, AbPlan
from specbench.harness.store.codec import from_document, to_document
from specbench.harness.store.run_directory import RunDirectory

_FILE = "blocks.jsonl"


def missing_blocks(plan: AbPlan, directory: RunDirectory) -> list[tuple[int, tuple[str, str]]]:
    """Blocks to measure, with the order of their sides. A block of which one side is missing is measured anew: its
    sides must have run back to back."""
    done = directory.done_blocks()
    return [(n, order) for n, order in enumerate(plan.order()) if not all((label, n) in done for label in LABELS)]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockRecord:
    """What was seen around one block of one side: load average (1 minute) before and after, `reasons` to reject it,
    what could not be checked; of a process of its own its exit code, duration, run, and the files that it ran."""

    arm: str
    block: int
    position: int
    load_average: tuple[float | None, ...] | None = None
    reasons: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    exit_code: int | None = None
    wall_s: float | None = None
    code_state: str | None = None
    run_id: str | None = None


def add_record(directory: Path, record: BlockRecord) -> None:
    """Appends the record of a block; a later line of the same block replaces it. A line that was cut off (a kill, a
    full disk) is ended first: it must not swallow this one."""
    line = json.dumps(to_document(record), allow_nan=False)
    with (directory / _FILE).open("a", encoding="utf-8") as stream:
        stream.write("" if _ends_whole(directory / _FILE) else "\n")
        stream.write(line + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _ends_whole(path: Path) -> bool:
    content = path.read_bytes()
    return not content or content.endswith(b"\n")


def read_records(directory: Path) -> dict[tuple[str, int], BlockRecord]:
    """The last record of each block. A line cut off by a kill is skipped: its block was measured again."""
    path = directory / _FILE
    records: dict[tuple[str, int], BlockRecord] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            raw = json.loads(line)
        except json.JSONDecodeError:
            continue
        record = from_document(BlockRecord, raw, str(path))
        records[record.arm, record.block] = record
    return records
