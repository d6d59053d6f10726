"""One arm on all ranks, behind the interface of engines: rank 0 makes the rows, the others do the same work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TypeVar

from specbench.harness.engines.base import Capabilities, RowSink, Scored
from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.engines.native.ranks.processes import Processes
from specbench.harness.engines.traced import Traced, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.store.arm_record import EngineFacts

T = TypeVar("T")


class RankedDeployment:
    def __init__(self, processes: Processes, number: int, facts: EngineFacts, batch_size: int):
        self._processes, self._number = processes, number
        self.described, self.batch_size = facts, batch_size

    def __enter__(self) -> RankedDeployment:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._processes.ended:
            self._processes.ask(None, "drop", self._number)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    def check(self, load: Load) -> None:
        self._processes.ask(None, "ask", self._number, "check", (load,))

    def warm_up(self, load: Load, warmup: WarmUp) -> None:
        done: WarmUp = self._processes.ask(None, "warm_up", self._number, load, warmup)
        for each in fields(WarmUp):
            setattr(warmup, each.name, getattr(done, each.name))
        self.described = self.look(attrgetter("described"))  # captures add to it

    def measure(self, load: Load, sink: RowSink) -> None:
        self._processes.ask(sink, "measure", self._number, load)

    def reset(self) -> None:
        """Nothing is kept between blocks."""

    def generate(self, requests: Sequence[PromptRequest], sink: RowSink) -> dict[int, str | None]:
        texts: dict[int, str | None] = self._processes.ask(sink, "generate", self._number, requests)
        return texts

    def score(self, ids: Sequence[int], num_scored: int) -> Scored:
        scored: Scored = self._processes.ask(None, "ask", self._number, "score", (ids, num_scored))
        return scored

    def look(self, read: Callable[[NativeDeployment], T]) -> T:
        """The result of a module's function in each rank's own deployment; rank 0's is returned."""
        found: T = self._processes.ask(None, "look", self._number, read)
        return found

    def trace(self, load: Load, num_rounds: int, tracer: Tracer) -> Traced:
        """Every rank traces itself; returns rank 0's report of its rounds."""
        traced: Traced = self._processes.ask(None, "trace", self._number, load, num_rounds, tracer.of_rank())
        return traced
