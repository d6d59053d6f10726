"""Remaining time, estimated from what has ended: blocks of arms, points of a sweep, parts of a certificate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from statistics import mean


class Remaining:
    """`to_come`: the arms of the remaining blocks, including the current one; or any other names, if things of the same
    name take equally long."""

    def __init__(self, to_come: Iterable[str]) -> None:
        self._left = Counter(to_come)
        self._last_s: dict[str, float] = {}
        self._at_work: tuple[str, float] | None = None

    def ended(self, label: str, took_s: float) -> None:
        """The first block of an arm includes its warm-up, so only the last one counts."""
        self._left[label] -= 1
        self._last_s[label] = took_s

    def begin(self, label: str) -> str:
        """Called when an item begins, which ends the previous one; returns the text of the remaining time."""
        now = time.monotonic()
        if self._at_work is not None:
            self.ended(self._at_work[0], now - self._at_work[1])
        self._at_work = label, now
        return self.text()

    @property
    def left_s(self) -> float | None:
        """None before the first block has ended. An arm without an ended block counts as the mean of the others."""
        if not self._last_s:
            return None
        usual = mean(self._last_s.values())
        return sum(max(num, 0) * self._last_s.get(label, usual) for label, num in self._left.items())

    def text(self) -> str:
        """`, about 3 min left`; empty if unknown."""
        left_s = self.left_s
        return "" if left_s is None else f", about {duration(left_s)} left"


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
