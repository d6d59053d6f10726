"""The orders and messages of a rank: pickled over its standard streams, which only we use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specbench.harness.store.rows import CounterRow, LogprobRow, PhaseRow, RequestRow, StepRow


@dataclass(frozen=True, slots=True)
class Order:
    """A method of rank.py's `Rank` and its arguments. Every rank gets every order, in the same sequence."""

    name: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """A message before the answer, from rank 0 only: a method of the sink or the progress, and its arguments."""

    name: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The end of an order. `value`: of rank 0 only; `way`: of the rows it made, equal on ranks that did the same."""

    value: Any
    way: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """`kind`: input (a ValueError), memory or engine."""

    kind: str
    text: str
    traceback: str


class Forwarder:
    """A sink and a progress that pass on what they get, and record which path the engine took."""

    cancelled = False

    def __init__(self, tell: Callable[[Notice], None]):
        self._tell = tell
        self._way = hashlib.sha256()

    @property
    def way(self) -> str:
        """Covers tokens, scheduling, graphs and waits; never times."""
        return self._way.hexdigest()

    def say(self, text: str) -> None:
        self._tell(Notice("say", (text,)))

    def asset(self, name: str, done: int, total: int) -> None:
        self._tell(Notice("asset", (name, done, total)))

    def request(self, row: RequestRow) -> None:
        self._note(row.request_id, row.output_token_ids, row.finish_reason)
        self._tell(Notice("request", (row,)))

    def add_steps(self, rows: Sequence[StepRow]) -> None:
        for row in rows:
            self._note(row.step, row.kind, row.request_id, row.num_padded_rows, row.num_accepted, row.num_emitted)
            self._note(row.graph, row.syncs)
        self._tell(Notice("add_steps", (rows,)))

    def add_phases(self, rows: Sequence[PhaseRow]) -> None:
        self._tell(Notice("add_phases", (rows,)))

    def add_counters(self, rows: Sequence[CounterRow]) -> None:
        self._tell(Notice("add_counters", (rows,)))

    def add_logprobs(self, rows: Sequence[LogprobRow]) -> None:
        self._tell(Notice("add_logprobs", (rows,)))

    def _note(self, *what: object) -> None:
        self._way.update(repr(what).encode())
