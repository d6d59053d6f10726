"""The rows of a block in progress, written as they arrive, so that finished requests survive a kill.

    journal/<arm>-<n>.jsonl   a line that names the block, then one line per request or batch of other rows

When a block ends normally, it is stored as a whole and its journal is removed. Remaining journals belong to blocks that
were interrupted or failed: no figure is derived from them, and measuring the block again replaces them.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import msgspec

from specbench.harness.store.rows import CounterRow, LogprobRow, PhaseRow, RequestRow, Row, StepRow
from specbench.workloads.guarded import numbered_lines, parse_json

_KINDS: dict[str, type[RequestRow] | type[StepRow] | type[PhaseRow] | type[CounterRow] | type[LogprobRow]] = {
    "requests": RequestRow,
    "steps": StepRow,
    "phases": PhaseRow,
    "counters": CounterRow,
    "logprobs": LogprobRow,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PartialBlock:
    """What remains of a block that did not end: the finished `requests`, out of `num_requests`."""

    arm: str
    repeat: int
    num_requests: int
    requests: tuple[RequestRow, ...] = ()
    steps: tuple[StepRow, ...] = ()
    phases: tuple[PhaseRow, ...] = ()
    counters: tuple[CounterRow, ...] = ()
    logprobs: tuple[LogprobRow, ...] = ()


class OpenBlock:
    """A block that is being measured. Its rows stay in memory and are stored once it is complete.

    Requests are also appended to the journal, by a separate thread: a write at the end of each request would delay the
    next step. A kill loses what ended in the last EVERY_S seconds. A full disk ends the journal, not the block.
    """

    EVERY_S = 0.5

    def __init__(self, path: Path, arm: str, repeat: int, num_requests: int) -> None:
        """Replaces what an earlier attempt left. Raises OSError."""
        self.path = path
        self.requests: list[RequestRow] = []
        self.steps: list[StepRow] = []
        self.phases: list[PhaseRow] = []
        self.counters: list[CounterRow] = []
        self.logprobs: list[LogprobRow] = []
        self._pending: deque[tuple[str, Sequence[Row]]] = deque()
        self._has_ended = Event()
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"arm": arm, "repeat": repeat, "num_requests": num_requests}) + "\n")
        self._thread = Thread(target=self._write_along, name="journal", daemon=True)
        self._thread.start()

    def request(self, row: RequestRow) -> None:
        self.requests.append(row)
        self._pending.append(("requests", [row]))

    def add_steps(self, rows: Sequence[StepRow]) -> None:
        self.steps += rows

    def add_phases(self, rows: Sequence[PhaseRow]) -> None:
        self.phases += rows

    def add_counters(self, rows: Sequence[CounterRow]) -> None:
        self.counters += rows

    def add_logprobs(self, rows: Sequence[LogprobRow]) -> None:
        self.logprobs += rows

    def close(self) -> None:
        """Returns once everything passed to the journal is on disk."""
        self._has_ended.set()
        self._thread.join()

    def keep(self) -> None:
        """For a block that did not end: keeps what there is, including steps and phases."""
        if self.requests:
            others: dict[str, Sequence[Row]] = {name: getattr(self, name) for name in _KINDS if name != "requests"}
            self._pending += [(kind, rows) for kind, rows in others.items() if rows]
        self.close()
        if not self.requests:
            self.path.unlink(missing_ok=True)

    def _write_along(self) -> None:
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as stream:
            has_ended = False
            while not has_ended:
                has_ended = self._has_ended.wait(self.EVERY_S)
                while self._pending:
                    kind, rows = self._pending.popleft()
                    stream.write(json.dumps({kind: rows}) + "\n")
                stream.flush()  # to the system, so that it survives a kill of this process


def read_journal(path: Path) -> PartialBlock | None:
    """None for a journal that was truncated within its first line. A line truncated by a kill is skipped."""
    rows: dict[str, list[Row]] = {kind: [] for kind in _KINDS}
    block: dict[str, object] = {}
    for _, text in numbered_lines(path):
        try:
            line = msgspec.convert(parse_json(text), dict[str, object])
            if block:
                for kind, values in line.items():
                    rows[kind] += [msgspec.convert(row, _KINDS[kind]) for row in msgspec.convert(values, list)]
            else:
                block = {
                    "arm": str(line["arm"]),
                    **{key: msgspec.convert(line[key], int) for key in ("repeat", "num_requests")},
                }
        except (ValueError, KeyError):
            break
    return PartialBlock(**block, **{kind: tuple(of_kind) for kind, of_kind in rows.items()}) if block else None  # type: ignore[arg-type]
