"""What lies in the directories of an experiment: every file read, every measured request by its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Request = tuple[str, str, int, int]  # run directory, arm, repeat, request id


def look(folder: Path) -> Callable[[Callable[[Any], None]], int]:
    """For process.run: tells [requests of stored blocks, requests of journals, leftovers], each request with
    its end in ns. An unreadable file ends it with a traceback."""

    def work(tell: Callable[[Any], None]) -> int:
        import pyarrow.parquet as pq

        from specbench.harness.store.run_directory import RunDirectory

        whole: list[Any] = []
        partial: list[Any] = []
        seen = [path for path in sorted(folder.rglob("*")) if not _is_hidden(path.relative_to(folder))]
        for file in filter(Path.is_file, seen):
            if file.suffix == ".json":
                json.loads(file.read_text(encoding="utf-8"))
            elif file.suffix == ".parquet":
                pq.read_table(file)
        for record in (path for path in seen if path.name == "run.json"):
            run = RunDirectory.open(record.parent)
            frame = run.frames().requests
            columns = [frame[name] for name in ("arm", "repeat", "request_id", "t_last_ns")]
            whole += [[str(run.path), a, int(n), int(i), int(t)] for a, n, i, t in zip(*columns, strict=True)]
            for block in run.partial_blocks():
                rows = block.requests
                partial += [[str(run.path), block.arm, block.repeat, row.request_id, row.t_last_ns] for row in rows]
        hidden = [str(path) for path in folder.rglob(".*") if path.name not in (".lock", ".index.json")]
        tell([whole, partial, hidden])
        return 0

    return work


def _is_hidden(path: Path) -> bool:
    """A temporary file, or part of a copy, that a kill has left: nobody reads it."""
    return any(part.startswith(".") for part in path.parts)


def by_name(rows: Sequence[Sequence[Any]]) -> dict[Request, int]:
    """End in ns of each."""
    return {(run, arm, repeat, number): end for run, arm, repeat, number, end in rows}
