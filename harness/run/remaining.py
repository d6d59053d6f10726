"""How long the blocks still to come will take, judged by those that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean


@dataclass(slots=True)
class Remaining:
    """`to_come`: the arms of the blocks that are not measured yet, in order, the one being measured included."""

    to_come: Sequence[str]
    _num_ended: int = field(default=0, init=False)
    _last_s: dict[str, float] = field(default_factory=dict, init=False)

    def ended(self, label: str, took_s: float) -> None:
        """The first block of an arm includes its warm-up, so only the last one counts."""
        self._num_ended += 1
        self._last_s[label] = took_s

    def text(self) -> str:
        """`, about 3 min left`; nothing before a block has ended. An arm without one takes the mean of the others."""
        if not self._last_s:
            return ""
        usual = mean(self._last_s.values())
        left_s = sum(self._last_s.get(label, usual) for label in self.to_come[self._num_ended :])
        return f", about {duration(left_s)} left"


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
