"""Passes rows from an engine to disk and reports progress as requests end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from specbench.harness.store.journal import OpenBlock
from specbench.harness.store.rows import CounterRow, LogprobRow, PhaseRow, RequestRow, StepRow


class WatchesRequests(Protocol):
    def request_done(self, row: RequestRow) -> None: ...


class NullSink:
    """An engine's `RowSink` that discards everything."""

    cancelled = False

    def request(self, row: RequestRow) -> None: ...

    def add_steps(self, rows: Sequence[StepRow]) -> None: ...

    def add_phases(self, rows: Sequence[PhaseRow]) -> None: ...

    def add_counters(self, rows: Sequence[CounterRow]) -> None: ...

    def add_logprobs(self, rows: Sequence[LogprobRow]) -> None: ...


class BlockSink(NullSink):
    """The sink of one block."""

    def __init__(self, block: OpenBlock, progress: WatchesRequests):
        self._block, self._progress = block, progress

    def request(self, row: RequestRow) -> None:
        self._block.request(row)
        self._progress.request_done(row)

    def add_steps(self, rows: Sequence[StepRow]) -> None:
        self._block.add_steps(rows)

    def add_phases(self, rows: Sequence[PhaseRow]) -> None:
        self._block.add_phases(rows)

    def add_counters(self, rows: Sequence[CounterRow]) -> None:
        self._block.add_counters(rows)

    def add_logprobs(self, rows: Sequence[LogprobRow]) -> None:
        self._block.add_logprobs(rows)
