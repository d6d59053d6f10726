"""The rows of a block that is being measured, on disk as they come, so that a kill keeps the requests that had ended.

    journal/<arm>-<n>.jsonl   a line that names the block, then one line a request or batch of other rows

A block that ends well is stored whole and its journal removed. What is left in this folder are blocks that were
interrupted, or failed, before their end: no figure is derived from them, and measuring the block again replaces them.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from specbench.harness.store.rows import PhaseRow, RequestRow, Row, StepRow

_KINDS: dict[str, type[RequestRow] | type[StepRow] | type[PhaseRow]] = {
    "requests": RequestRow,
    "steps": StepRow,
    "phases": PhaseRow,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PartialBlock:
    """What is left of a block that did not end: `requests` that had ended, of `num_requests`."""

    arm: str
    repeat: int
    num_requests: int
    requests: tuple[RequestRow, ...] = ()
    steps: tuple[StepRow, ...] = ()
    phases: tuple[PhaseRow, ...] = ()


class Journal:
    """Appends the rows of one block from a thread of its own: a write at the end of each request would stand between
    two steps. A kill loses what ended in the last EVERY_S.

    A disk that takes nothing ends the journal and not the block, which is stored at its end and says so then.
    """

    EVERY_S = 0.5

    def __init__(self, path: Path):
        self.path = path
        self._pending: deque[tuple[str, Sequence[Row]]] = deque()
        self._has_ended = Event()
        self._thread: Thread | None = None

    def begin(self, arm: str, repeat: int, num_requests: int) -> None:
        """Replaces what an earlier try left. Raises OSError."""
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps({"arm": arm, "repeat": repeat, "num_requests": num_requests}) + "\n")
        self._thread = Thread(target=self._write_along, name="journal", daemon=True)
        self._thread.start()

    def add(self, kind: str, rows: Sequence[Row]) -> None:
        """`kind`: requests, steps or phases."""
        self._pending.append((kind, rows))

    def close(self) -> None:
        """Everything that was added is on disk then."""
        self._has_ended.set()
        if self._thread is not None:
            self._thread.join()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def _write_along(self) -> None:
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as stream:
            has_ended = False
            while not has_ended:
                has_ended = self._has_ended.wait(self.EVERY_S)
                while self._pending:
                    kind, rows = self._pending.popleft()
                    stream.write(json.dumps({kind: rows}) + "\n")
                stream.flush()  # to the system, which keeps it should this process be killed


def read_journal(path: Path) -> PartialBlock | None:
    """None for one that was cut off before its first line ended. A line cut off by a kill is left out."""
    rows: dict[str, list[Row]] = {kind: [] for kind in _KINDS}
    head: dict[str, object] | None = None
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
            if head is None:
                head = {key: line[key] for key in ("arm", "repeat", "num_requests")}
                continue
            for kind, found in line.items():
                rows[kind] += [_KINDS[kind](*values) for values in found]
        except (ValueError, KeyError, TypeError):
            break
    return None if head is None else PartialBlock(**head, **{kind: tuple(found) for kind, found in rows.items()})  # type: ignore[arg-type]


@dataclass(slots=True)
class OpenBlock:
    """A block that is being measured. Rows stay in memory too: the block is stored from there once it is whole."""

    journal: Journal
    requests: list[RequestRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    phases: list[PhaseRow] = field(default_factory=list)

    def request(self, row: RequestRow) -> None:
        self.requests.append(row)
        self.journal.add("requests", [row])

    def add_steps(self, rows: Sequence[StepRow]) -> None:
        self.steps += rows

    def add_phases(self, rows: Sequence[PhaseRow]) -> None:
        self.phases += rows

    def keep(self) -> None:
        """The block did not end: what there is stays, steps and phases included."""
        if self.requests:
            if self.steps:
                self.journal.add("steps", self.steps)
            if self.phases:
                self.journal.add("phases", self.phases)
            self.journal.close()
        else:
            self.journal.remove()
