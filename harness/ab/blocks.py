"""What both ways of measuring share: the record of each block beside the raw tables, and which blocks are missing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specbench.harness.store.files import to_plain
from specbench.harness.store.run_directory import RunDirectory

from .plan import LABELS, AbPlan

_FILE = "blocks.jsonl"


def missing_blocks(plan: AbPlan, directory: RunDirectory) -> list[tuple[int, tuple[str, str]]]:
    """Blocks to measure, with the order of their sides. A block of which one side is missing is measured anew: its
    sides must have run back to back."""
    done = directory.done_blocks()
    return [(n, order) for n, order in enumerate(plan.order()) if not all((label, n) in done for label in LABELS)]


def add_record(directory: Path, label: str, block: int, position: int, **facts: Any) -> None:
    """Appends what was seen around one block; a later line of the same block replaces it. A line that was cut off (a
    kill, a full disk) is ended first: it must not swallow this one."""
    line = json.dumps(to_plain({"arm": label, "block": block, "position": position, **facts}), allow_nan=False)
    with (directory / _FILE).open("a", encoding="utf-8") as stream:
        stream.write("" if _ends_whole(directory / _FILE) else "\n")
        stream.write(line + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _ends_whole(path: Path) -> bool:
    content = path.read_bytes()
    return not content or content.endswith(b"\n")


def read_records(directory: Path) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The last record of each block. A line cut off by a kill is none: its block was measured again."""
    path = directory / _FILE
    records: dict[tuple[str, int], Mapping[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        records[record["arm"], record["block"]] = record
    return records
