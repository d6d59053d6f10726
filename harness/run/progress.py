"""Progress messages of a measurement."""

from __future__ import annotations

from typing import Protocol

from specbench.harness.store.rows import RequestRow


class Progress(Protocol):
    @property
    def is_quiet(self) -> bool: ...

    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None:
        """Bytes of a download: `done` of `total` (0: unknown)."""

    def start_block(self, what: str, num_requests: int) -> None: ...

    def request_done(self, row: RequestRow) -> None:
        """One of the block's requests has ended just now."""


class NullProgress:
    """For callers that show nothing."""

    is_quiet = True

    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None: ...

    def start_block(self, what: str, num_requests: int) -> None: ...

    def request_done(self, row: RequestRow) -> None: ...
