"""The number of drafts in a round: fixed, or chosen before each launch by load and recent acceptance.

The host chooses from what it already knows: how many requests run, and the status of earlier rounds, which it reads one
or more rounds late. It waits for nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Protocol

from specbench.harness.store.draft_table import DraftTable, read_draft_table

_DECAY = 0.98  # of a round's weight, with each later round: a half-life of 34 rounds
_BELIEF = 8.0  # weight of the table's own acceptance, in drafts: without new rounds it prevails again
_MOST_RATIO, _MOST_RATE = 4.0, 0.99
# What the present number must have lost before it changes. The round after a rise verifies the fewer drafts that there
# are; after a fall none is missing, but it should not follow every flicker of acceptance.
_RISE_COST_ROUNDS, _FALL_COST_ROUNDS = 1.0, 0.25


class DraftCounts(Protocol):
    @property
    def choices(self) -> tuple[int, ...]:
        """Ascending: each has its own layouts and, if rounds are captured, graphs."""
        ...

    def choose(self, num_requests: int) -> int:
        """Drafts that the next step verifies and makes for each of `num_requests` requests."""
        ...

    def accepted(self, num_drafts: int, status: Sequence[Sequence[int]]) -> None:
        """Called when a decode round was read: the drafts that each request could have, and the status rows
        (commit.py)."""
        ...


class FixedDrafts:
    def __init__(self, num_drafts: int):
        self.choices = (num_drafts,)

    def choose(self, num_requests: int) -> int:
        return self.choices[0]

    def accepted(self, num_drafts: int, status: Sequence[Sequence[int]]) -> None:
        """Changes nothing."""


class TableDrafts:
    """The number of drafts with the lowest expected time per token.

    A sweep measured that time by load and number of drafts, at its own acceptance. Recent rounds give the ratio of
    actual acceptance to the sweep's; the same ratio is assumed for every position, since rounds give no information
    about positions beyond the current number.
    """

    def __init__(self, table: DraftTable):
        self.choices = table.counts
        self._rates = table.acceptance
        self._expected = [0.0, *accumulate(self._rates)]  # accepted drafts by how many were tried
        self._loads = [load.max_concurrency for load in table.loads]
        self._tpot_ms = [[load.tpot_ms(k) for k in self.choices] for load in table.loads]
        self._usual = self._tokens(1.0)
        self._num_accepted = self._num_expected = 0.0
        self._index: int | None = None
        self._lost_rounds = 0.0  # with this number, against the best of each round

    @classmethod
    def read(cls, file: Path, strategy: str, options: Mapping[str, str]) -> TableDrafts:
        """ValueError without a table of the strategy, with these options if there are several."""
        return cls(read_draft_table(file, strategy, options))

    @property
    def ratio(self) -> float:
        """Recent acceptance divided by the table's."""
        return min(_MOST_RATIO, (self._num_accepted + _BELIEF) / (self._num_expected + _BELIEF))

    def choose(self, num_requests: int) -> int:
        usual, now, table_ms = self._usual, self._tokens(self.ratio), self._tpot_at(num_requests)
        promised = [ms * usual[k] / now[k] for ms, k in zip(table_ms, self.choices, strict=True)]
        best = min(range(len(promised)), key=promised.__getitem__)
        if self._index is None:
            self._index = best
        # A change once the present number has lost what a change costs, as in ski rental: numbers that are about equal
        # do not alternate, and one that is a little worse does not stay.
        self._lost_rounds += promised[self._index] / promised[best] - 1
        cost_rounds = _RISE_COST_ROUNDS if best > self._index else _FALL_COST_ROUNDS
        if best != self._index and self._lost_rounds >= cost_rounds:
            self._index, self._lost_rounds = best, 0.0
        return self.choices[self._index]

    def accepted(self, num_drafts: int, status: Sequence[Sequence[int]]) -> None:
        counts = [row[0] for row in status if row[1]]  # only of requests that had not ended
        if not counts:
            return
        num_expected = sum(self._expected[min(count + 1, num_drafts)] for count in counts)
        self._num_accepted = _DECAY * self._num_accepted + sum(counts) / len(counts)
        self._num_expected = _DECAY * self._num_expected + num_expected / len(counts)

    def _tokens(self, ratio: float) -> list[float]:
        """Expected tokens of a round by its number of drafts, from 0."""
        rates = [min(_MOST_RATE, ratio * rate) for rate in self._rates]
        return list(accumulate(accumulate(rates, mul), initial=1.0))

    def _tpot_at(self, num_requests: int) -> list[float]:
        """Interpolated linearly between loads."""
        at = bisect_left(self._loads, num_requests)
        if at in (0, len(self._loads)):
            return self._tpot_ms[min(at, len(self._loads) - 1)]
        low, high = self._loads[at - 1], self._loads[at]
        share = (num_requests - low) / (high - low)
        pairs = zip(self._tpot_ms[at - 1], self._tpot_ms[at], strict=True)
        return [a + share * (b - a) for a, b in pairs]
