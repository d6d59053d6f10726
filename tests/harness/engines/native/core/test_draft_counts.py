"""`k=auto`: how the number of drafts follows load and recent acceptance, from tables made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from specbench.harness.engines.native.core.draft_counts import TableDrafts
from specbench.harness.store.draft_table import CountTimes, DraftTable, LoadTimes

COUNTS = (0, 1, 2, 4)


def _load(load: int, tpot_ms: Sequence[float], counts: Sequence[int] = COUNTS) -> LoadTimes:
    times = [CountTimes(num_drafts=k, round_ms=10.0, tpot_ms=ms) for k, ms in zip(counts, tpot_ms, strict=True)]
    return LoadTimes(max_concurrency=load, best=0, times=tuple(times))


TABLE = DraftTable(
    strategy="ngram",
    options={},
    acceptance=(0.8, 0.8, 0.8, 0.8),
    loads=(_load(1, (10.0, 7.0, 5.0, 4.0)), _load(9, (6.0, 7.0, 9.0, 12.0))),
)


def _rows(*accepted: int) -> list[list[int]]:
    return [[count, count + 1, 0, 9] for count in accepted]


def test_the_best_count_of_the_table_at_each_load():
    assert [TableDrafts(TABLE).choose(n) for n in (1, 2, 9, 200)] == [4, 4, 0, 0]
    halfway = TableDrafts(TABLE)  # (8.0, 7.0, 7.0, 8.0): the first of equals
    assert halfway.choose(5) == 1


def test_fewer_drafts_while_few_are_accepted_and_more_again():
    counts = TableDrafts(TABLE)
    assert counts.choose(1) == 4
    chosen = []
    for _ in range(100):
        chosen.append(counts.choose(1))
        counts.accepted(chosen[-1], _rows(*[0] * 16))
    assert chosen.index(2) < 20 and set(chosen[20:]) == {0, 2}, "no drafts, and now and then a try of two"
    while counts.choose(1):
        counts.accepted(2, _rows(*[0] * 16))
    assert counts.ratio < 0.3
    for _ in range(500):  # rounds without drafts show nothing: the table is believed again
        counts.accepted(0, _rows(*[0] * 16))
    assert counts.choose(1) == 4 and counts.ratio > 0.99


def test_the_ratio_by_hand():
    """Two requests that could have four drafts: 2 accepted of three tried, 0 of one; expected are 2.4 and 0.8."""
    counts = TableDrafts(TABLE)
    counts.accepted(4, _rows(2, 0))
    assert counts.ratio == pytest.approx((2.0 + 100) / (3.2 + 100))
    other = TableDrafts(TABLE)  # drafts that a drafter made beyond its layout's two
    other.accepted(2, _rows(4))
    assert other.ratio == pytest.approx((4.0 + 100) / (1.6 + 100))
    counts.accepted(4, [[0, 0, 1, 9]])  # a request that had ended says nothing
    assert counts.ratio == pytest.approx((2.0 + 100) / (3.2 + 100))


def test_a_round_of_many_requests_shows_as_much_as_many_rounds_of_one():
    together, alone = TableDrafts(TABLE), TableDrafts(TABLE)
    together.accepted(4, _rows(*[4] * 32))
    for _ in range(32):
        alone.accepted(4, _rows(4))
    assert together.ratio == pytest.approx((32 * 4 + 100) / (32 * 3.2 + 100))
    assert alone.ratio == pytest.approx(together.ratio, rel=0.01)


# Two drafts give 1.75 tokens a round, one gives 1.5: the first round after a rise loses a seventh of its tokens.
@pytest.mark.parametrize(("first", "then", "num_rounds"), [(2, 1, 15), (1, 2, 10), (1, 3, 1)])
def test_a_number_changes_once_it_has_lost_what_the_change_costs(first: int, then: int, num_rounds: int):
    loads = (_load(1, (10.1, 10.0), (1, 2)), _load(2, (10.0, 10.1), (1, 2)), _load(3, (10.0, 14.3), (1, 2)))
    counts = TableDrafts(replace(TABLE, acceptance=(0.5, 0.5), loads=loads))
    before, after = counts.choose(first), {1: 2, 2: 1, 3: 1}[then]
    assert before == {1: 2, 2: 1}[first], "the first number has nothing to lose"
    chosen = [counts.choose(then) for _ in range(300)]
    assert chosen == sorted(chosen, key=[before, after].index) and abs(chosen.count(before) - num_rounds) <= 1


def test_numbers_that_are_about_equal_hardly_alternate():
    """Each is 1% better in every second round."""
    loads = (_load(1, (10.1, 10.0), (1, 2)), _load(2, (10.0, 10.1), (1, 2)))
    counts = TableDrafts(replace(TABLE, acceptance=(0.5, 0.5), loads=loads))
    chosen = [counts.choose(1 + number % 2) for number in range(10_000)]
    assert sum(a != b for a, b in pairwise(chosen)) < 20, "of 10,000"
