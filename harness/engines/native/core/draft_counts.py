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
from specbench.kernels.commit import ACCEPTED, COMMITTED, DONE

# The traffic's acceptance: over how many rounds of a request, whatever the load (a round of 32 requests shows as much
# as 32 rounds of one), and the weight of the table's own in drafts: without new rounds it prevails again.
_MEMORY, _BELIEF = 1000, 100.0
# The present requests' acceptance: over how many rounds, and the weight of the traffic's in drafts. From rounds of
# SmolLM2's head on 485 prompts: two rounds of a request correlate by 0.24 if adjacent, 0.05 if 12 or more apart: a few
# rounds say little and older ones less. 10 to 40 rounds and 20 to 100 drafts do about equally well.
_PRESENT, _DOUBT = 20, 40.0
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


class _Estimate(NamedTuple):
    """Of each choice at one load and acceptance: time per token, tokens of a round; and which choice is best."""

    tpot_ms: list[float]
    tokens: list[float]
    best: int


class _Seen:
    """Accepted drafts and those that the table expected, each round weighing less than the next."""

    __slots__ = ("accepted", "expected")

    def __init__(self) -> None:
        self.accepted = self.expected = 0.0

    def decay(self, share: float) -> None:
        self.accepted *= share
        self.expected *= share

    def add(self, accepted: float, expected: float) -> None:
        self.accepted += accepted
        self.expected += expected

    def ratio(self, prior: float, weight: float) -> float:
        return (self.accepted + weight * prior) / (self.expected + weight)


class TableDrafts:
    """The number of drafts with the lowest expected time per token.

    A sweep measured that time by load and number of drafts, at its own acceptance. Earlier rounds give the ratio of
    actual acceptance to the sweep's: the traffic's, and from it that of the present requests. The same ratio is assumed
    for every position, since rounds give no information about positions beyond the current number.
    """

    def __init__(self, table: DraftTable):
        self.choices = table.counts
        self._rates = table.acceptance
        expected = [0.0, *accumulate(self._rates)]  # accepted drafts by how many were tried
        # By the number of drafts, then by how many were accepted: one more was tried, if there was one. All have the
        # full length, since a drafter may have left more drafts than it says.
        self._expected = [[expected[min(n + 1, k)] for n in range(len(expected))] for k in range(len(expected))]
        self._loads = [load.max_concurrency for load in table.loads]
        self._tpot_ms = [[load.tpot_ms(k) for k in self.choices] for load in table.loads]
        self._usual = self._tokens(1.0)
        self._traffic, self._present = _Seen(), _Seen()
        self._estimates: dict[tuple[int, int], _Estimate] = {}
        self._index: int | None = None
        self._regret = [0.0] * len(self.choices)  # in rounds, against each other number

    @classmethod
    def read(cls, file: Path, strategy: str, options: Mapping[str, str], defaults: Mapping[str, str]) -> TableDrafts:
        """ValueError without a table of the strategy, with these options if there are several."""
        return cls(read_draft_table(file, strategy, options, defaults))

    @property
    def ratio(self) -> float:
        """The present requests' acceptance divided by the table's."""
        return min(_MOST_RATIO, self._present.ratio(self._traffic.ratio(1.0, _BELIEF), _DOUBT))

    def choose(self, num_requests: int) -> int:
        estimate, now = self._estimate(num_requests), self._index
        if now is None:
            now = self._index = estimate.best
        if estimate.best != now or any(self._regret):
            self._weigh(now, estimate)
        return self.choices[self._index or 0]

    def _weigh(self, now: int, estimate: _Estimate) -> None:
        """Changes to the best number once the present one has lost against it what the change costs. What it wins
        counts as well, so numbers that are about equal do not alternate."""
        tpot_ms, tokens, best = estimate
        self._regret = [max(0.0, lost + tpot_ms[now] / ms - 1) for lost, ms in zip(self._regret, tpot_ms, strict=True)]
        # The round after a rise verifies the fewer drafts that there are; after a fall none is missing.
        if best != now and self._regret[best] >= max(_LEAST_COST, 1 - tokens[now] / tokens[best]):
            self._index, self._regret = best, [0.0] * len(self.choices)

    def accepted(self, num_drafts: int, status: Sequence[Sequence[int]]) -> None:
        rows = [row for row in status if row[COMMITTED]]  # only of requests that had not ended
        if not rows:
            return
        counts, by_count = [row[ACCEPTED] for row in rows], self._expected[num_drafts]
        accepted, expected = sum(counts), sum([by_count[count] for count in counts])
        self._traffic.decay((1 - 1 / _MEMORY) ** len(rows))
        self._present.decay(1 - 1 / _PRESENT)
        for seen in (self._traffic, self._present):
            seen.add(accepted, expected)
        if ended := len([1 for row in rows if row[DONE]]):
            self._present.decay(1 - ended / len(rows))  # what they showed goes with them

    def _estimate(self, num_requests: int) -> _Estimate:
        step = round(_RATIO_STEPS * self.ratio)
        found = self._estimates.get((num_requests, step))
        if found is None:
            usual, now, table_ms = self._usual, self._tokens(step / _RATIO_STEPS), self._tpot_at(num_requests)
            tpot_ms = [ms * usual[k] / now[k] for ms, k in zip(table_ms, self.choices, strict=True)]
            best = min(range(len(tpot_ms)), key=tpot_ms.__getitem__)
            found = self._estimates[num_requests, step] = _Estimate(tpot_ms, [now[k] for k in self.choices], best)
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
