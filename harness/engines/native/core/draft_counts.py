"""How many drafts a round has: the same in every round, or chosen before each launch by load and recent acceptance.

The host chooses by what it knows anyway: how many requests run, and the status of earlier rounds, which it reads one
round late or later. Nothing is waited for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Protocol

from specbench.harness.store.draft_table import DraftTable, read_draft_table

_DECAY = 0.98  # of what a round showed, with each later one: half of it is forgotten after 34
_BELIEF = 8.0  # drafts for which the table's own acceptance counts: without news it is believed again
_MOST_RATIO, _MOST_RATE = 4.0, 0.99
_MARGIN = 0.02  # another count must promise so much less time: a change costs a round with fewer drafts


class DraftCounts(Protocol):
    @property
    def choices(self) -> tuple[int, ...]:
        """Rising: each has layouts, and where rounds are captured graphs, of its own."""
        ...

    def choose(self, num_requests: int) -> int:
        """Drafts that the next step verifies and makes for each of that many requests."""
        ...

    def accepted(self, num_drafts: int, status: Sequence[Sequence[int]]) -> None:
        """A decode round was read: the drafts that each request could have, and the status rows (commit.py)."""
        ...


class FixedDrafts:
    def __init__(self, num_drafts: int):
        self.choices = (num_drafts,)

    def choose(self, num_requests: int) -> int:
        return self.choices[0]

    def accepted(self, num_drafts: int, status: Sequence[Sequence[int]]) -> None:
        """Changes nothing."""


class TableDrafts:
    """The count that promises the least time per token.

    A sweep measured that time by load and count, at the acceptance it met. Recent rounds say by which ratio drafts are
    accepted more or less often than there; every position is taken to differ by the same ratio, since positions beyond
    the current count show nothing.
    """

    def __init__(self, table: DraftTable):
        self.choices = table.counts
        self._rates = table.acceptance
        self._loads = [load.max_concurrency for load in table.loads]
        self._tpot_ms = [[load.tpot_ms(k) for k in self.choices] for load in table.loads]
        self._usual = self._tokens(1.0)
        self._num_accepted = self._num_expected = 0.0
        self._index = len(self.choices) - 1

    @classmethod
    def read(cls, file: Path, strategy: str, options: Mapping[str, str]) -> TableDrafts:
        """ValueError without a table of the strategy, with these options where there are several."""
        return cls(read_draft_table(file, strategy, options))

    @property
    def ratio(self) -> float:
        """Recent acceptance over the table's."""
        return min(_MOST_RATIO, (self._num_accepted + _BELIEF) / (self._num_expected + _BELIEF))

    def choose(self, num_requests: int) -> int:
        usual, now, table_ms = self._usual, self._tokens(self.ratio), self._tpot_at(num_requests)
        promised = [ms * usual[k] / now[k] for ms, k in zip(table_ms, self.choices, strict=True)]
        best = min(range(len(promised)), key=promised.__getitem__)
        if promised[best] < (1 - _MARGIN) * promised[self._index]:
            self._index = best
        return self.choices[self._index]

    def accepted(self, num_drafts: int, status: Sequence[Sequence[int]]) -> None:
        counts = [row[0] for row in status if row[1]]  # of requests that had not ended
        if not counts:
            return
        tried = [self._rates[: min(count + 1, num_drafts)] for count in counts]
        self._num_accepted = _DECAY * self._num_accepted + sum(counts) / len(counts)
        self._num_expected = _DECAY * self._num_expected + sum(map(sum, tried)) / len(counts)

    def _tokens(self, ratio: float) -> list[float]:
        """Tokens of a round by its number of drafts, 0 first."""
        rates = [min(_MOST_RATE, ratio * rate) for rate in self._rates]
        return list(accumulate(accumulate(rates, mul), initial=1.0))

    def _tpot_at(self, num_requests: int) -> list[float]:
        """Between two loads, on the line between them."""
        at = bisect_left(self._loads, num_requests)
        if at in (0, len(self._loads)):
            return self._tpot_ms[min(at, len(self._loads) - 1)]
        low, high = self._loads[at - 1], self._loads[at]
        share = (num_requests - low) / (high - low)
        pairs = zip(self._tpot_ms[at - 1], self._tpot_ms[at], strict=True)
        return [a + share * (b - a) for a, b in pairs]
