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
from typing import NamedTuple, Protocol

from specbench.harness.store.draft_table import DraftTable, read_draft_table

# How many rounds of a request count as recent, whatever the load: a round of 32 requests shows as much as 32 rounds of
# one. Fewer follow each request, whose successor accepts as much as any: they change K for nothing.
_MEMORY = 1000
_BELIEF = 100.0  # weight of the table's own acceptance, in drafts: without new rounds it prevails again
_MOST_RATIO, _MOST_RATE = 4.0, 0.99
_RATIO_STEPS = 64  # per 1: the choice is computed once for each load and step
_LEAST_COST = 0.1  # of a change of K, in rounds: it should not follow every flicker of acceptance


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


class _Promise(NamedTuple):
    """What each choice promises at one load and acceptance: time per token, tokens of a round; which is best."""

    tpot_ms: list[float]
    tokens: list[float]
    best: int


class TableDrafts:
    """The number of drafts with the lowest expected time per token.

    A sweep measured that time by load and number of drafts, at its own acceptance. Recent rounds give the ratio of
    actual acceptance to the sweep's; the same ratio is assumed for every position, since rounds give no information
    about positions beyond the current number.
    """

    def __init__(self, table: DraftTable):
        self.choices = table.counts
        self._rates = table.acceptance
        expected = [0.0, *accumulate(self._rates)]  # accepted drafts by how many were tried
        # By the number of drafts, then by how many were accepted: one more was tried, if there was one. All have the
        # full length, since some drafters leave more drafts than their layout has.
        self._expected = [[expected[min(n + 1, k)] for n in range(len(expected))] for k in range(len(expected))]
        self._loads = [load.max_concurrency for load in table.loads]
        self._tpot_ms = [[load.tpot_ms(k) for k in self.choices] for load in table.loads]
        self._usual = self._tokens(1.0)
        self._num_accepted = self._num_expected = 0.0
        self._promises: dict[tuple[int, int], _Promise] = {}
        self._index: int | None = None
        self._lost = [0.0] * len(self.choices)  # rounds, against each other number

    @classmethod
    def read(cls, file: Path, strategy: str, options: Mapping[str, str]) -> TableDrafts:
        """ValueError without a table of the strategy, with these options if there are several."""
        return cls(read_draft_table(file, strategy, options))

    @property
    def ratio(self) -> float:
        """Recent acceptance divided by the table's."""
        return min(_MOST_RATIO, (self._num_accepted + _BELIEF) / (self._num_expected + _BELIEF))

    def choose(self, num_requests: int) -> int:
        promise, now = self._promise(num_requests), self._index
        if now is None:
            now = self._index = promise.best
        if promise.best != now or any(self._lost):
            self._weigh(now, promise)
        return self.choices[self._index or 0]

    def _weigh(self, now: int, promise: _Promise) -> None:
        """Changes to the best number once the present one has lost against it what the change costs. What it wins
        counts as well, so numbers that are about equal do not alternate."""
        tpot_ms, tokens, best = promise
        self._lost = [max(0.0, lost + tpot_ms[now] / ms - 1) for lost, ms in zip(self._lost, tpot_ms, strict=True)]
        # The round after a rise verifies the fewer drafts that there are; after a fall none is missing.
        if best != now and self._lost[best] >= max(_LEAST_COST, 1 - tokens[now] / tokens[best]):
            self._index, self._lost = best, [0.0] * len(self.choices)

    def accepted(self, num_drafts: int, status: Sequence[Sequence[int]]) -> None:
        counts = [row[0] for row in status if row[1]]  # only of requests that had not ended
        if not counts:
            return
        expected, kept = self._expected[num_drafts], (1 - 1 / _MEMORY) ** len(counts)
        self._num_accepted = kept * self._num_accepted + sum(counts)
        self._num_expected = kept * self._num_expected + sum([expected[count] for count in counts])

    def _promise(self, num_requests: int) -> _Promise:
        step = round(_RATIO_STEPS * self.ratio)
        found = self._promises.get((num_requests, step))
        if found is None:
            usual, now, table_ms = self._usual, self._tokens(step / _RATIO_STEPS), self._tpot_at(num_requests)
            tpot_ms = [ms * usual[k] / now[k] for ms, k in zip(table_ms, self.choices, strict=True)]
            best = min(range(len(tpot_ms)), key=tpot_ms.__getitem__)
            found = self._promises[num_requests, step] = _Promise(tpot_ms, [now[k] for k in self.choices], best)
        return found

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
