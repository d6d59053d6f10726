"""Progress messages of a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from specbench.harness.store.rows import RequestRow


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is. `label`: of the arm or side. `counts`: (number, total), from 1, by what is counted: arm,
    repeat, block, point, part. `remaining_s`: an estimate that includes this one; None before the first has ended."""

    label: str
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    remaining_s: float | None = None


class Progress(Protocol):
    @property
    def is_quiet(self) -> bool: ...

    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None:
        """Bytes of a download: `done` of `total` (0: unknown)."""

    def at(self, place: Place) -> None:
        """What is measured next: called before `start_block`, or alone if another process measures it."""

    def start_block(self, what: str, num_requests: int) -> None: ...

    def request_done(self, row: RequestRow) -> None:
        """One of the block's requests has just ended."""


class NullProgress:
    """For callers that show nothing."""

    is_quiet = True

    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None: ...

    def at(self, place: Place) -> None: ...

    def start_block(self, what: str, num_requests: int) -> None: ...

    def request_done(self, row: RequestRow) -> None: ...
