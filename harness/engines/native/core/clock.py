"""How long each phase takes: by the host's clock if launches are synchronous, by CUDA events if they are not.

A clock records phase boundaries and is asked for durations later, so that nothing waits inside a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from typing import Protocol

import torch


class PhaseClock(Protocol):
    source: str

    def mark(self, name: str) -> None:
        """A boundary: the phase called `name` begins here; `end` closes the last one of a step."""
        ...

    def read(self) -> list[tuple[str, int]]:
        """(phase, duration in ns) of the marks since the last read."""
        ...


END = "end"
GAP = "gap"  # between two launches of one round


class NullClock:
    source = "none"

    def mark(self, name: str) -> None:
        return None

    def read(self) -> list[tuple[str, int]]:
        return []


class CountClock:
    """A clock whose time is a monotonic number; durations are its differences."""

    def __init__(self, source: str, now: Callable[[], int], passed_over: Set[str] = frozenset({END})):
        """`passed_over`: names of marks whose durations do not count."""
        self.source = source
        self._now = now
        self._passed_over = passed_over
        self._marks: list[tuple[str, int]] = []

    def mark(self, name: str) -> None:
        self._marks.append((name, self._now()))

    def read(self) -> list[tuple[str, int]]:
        marks, self._marks = self._marks, []
        pairs = zip(marks, marks[1:], strict=False)
        return [(name, after - before) for (name, before), (_, after) in pairs if name not in self._passed_over]


def host_clock() -> CountClock:
    """For devices that run work immediately (CPU)."""
    return CountClock("host_clock", time.perf_counter_ns)


class EventClock:
    """CUDA events between launches, or external events inside a capture (`external=True`: read after a replay).

    An instrumented graph is not the plain graph: its figures say how a round splits, never how fast it is.
    """

    def __init__(self, external: bool = False):
        self.source = "external_event" if external else "cuda_event"
        self._external = external
        self._marks: list[tuple[str, torch.cuda.Event]] = []

    def mark(self, name: str) -> None:
        event = torch.cuda.Event(enable_timing=True, external=self._external)
        event.record()
        self._marks.append((name, event))

    def read(self) -> list[tuple[str, int]]:
        """Waits for the last mark. External marks stay, to be read again after the next replay."""
        marks = self._marks
        if not self._external:
            self._marks = []
        if not marks:
            return []
        torch.cuda.synchronize()
        pairs = zip(marks, marks[1:], strict=False)
        return [(name, round(before.elapsed_time(after) * 1e6)) for (name, before), (_, after) in pairs if name != END]

    def ns_until(self, later: EventClock) -> int:
        """From this clock's last mark to the first of `later`, after both were read."""
        return round(self._marks[-1][1].elapsed_time(later._marks[0][1]) * 1e6)
