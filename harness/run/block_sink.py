"""Passes rows from an engine to disk and reports progress as requests end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from specbench.harness.store.journal import OpenBlock
from specbench.harness.store.rows import CounterRow, LogprobRow, PhaseRow, RequestRow, StepRow

_SLOWER = 1.1


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
    def __init__(self, block: OpenBlock, progress: WatchesRequests):
        self._block, self._progress = block, progress
        self._submits_ns: dict[int, int] = {}  # by request

    def is_slower_than(self, arrival_s: Sequence[float]) -> bool:
        """Whether its requests took longer than their schedule, from the first to the last: more than a tenth, so that
        a late client or a short burst does not count."""
        due_ns = [(self._submits_ns[index], arrival_s[index] * 1e9) for index in sorted(self._submits_ns)]
        if not due_ns:
            return False
        start_ns = min(sent - due for sent, due in due_ns)
        return max(sent for sent, _ in due_ns) - start_ns > _SLOWER * max(due for _, due in due_ns)

    def request(self, row: RequestRow) -> None:
        self._submits_ns[row.request_id] = row.t_submit_ns
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
