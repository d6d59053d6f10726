"""`k=auto`: how the number of drafts follows load and recent acceptance, from tables made by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from toy.draft_tables import TABLE, at_load

from specbench.harness.engines.native.core.draft_counts import TableDrafts


def _rows(*accepted: int) -> list[list[int]]:
    return [[count, count + 1, 0, 9] for count in accepted]


def test_the_best_count_of_the_table_at_eachat_load():
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
    traffic = (2.0 + 100) / (3.2 + 100)
    assert counts.ratio == pytest.approx((2.0 + 40 * traffic) / (3.2 + 40))
    other = TableDrafts(TABLE)  # drafts that a drafter made beyond its layout's two
    other.accepted(2, _rows(4))
    assert other.ratio == pytest.approx((4.0 + 40 * (4.0 + 100) / (1.6 + 100)) / (1.6 + 40))
    counts.accepted(4, [[0, 0, 1, 9]])  # a request that had ended says nothing
    assert counts.ratio == pytest.approx((2.0 + 40 * traffic) / (3.2 + 40))


def test_a_round_of_many_requests_shows_as_much_of_the_traffic_as_many_rounds_of_one():
    together, alone = TableDrafts(TABLE), TableDrafts(TABLE)
    together.accepted(4, _rows(*[4] * 32))
    for _ in range(32):
        alone.accepted(4, _rows(4))
    ratio = together._traffic.ratio(1.0, 100)
    assert ratio == pytest.approx((32 * 4 + 100) / (32 * 3.2 + 100))
    assert alone._traffic.ratio(1.0, 100) == pytest.approx(ratio, rel=0.01)


def test_what_a_request_shows_goes_with_it():
    """Of two requests that ended together all, of one among four a quarter; the traffic keeps it."""
    counts = TableDrafts(TABLE)
    counts.accepted(4, [[4, 5, 1, 9], [4, 5, 2, 9]])
    assert counts.ratio == pytest.approx((8.0 + 100) / (6.4 + 100)) == pytest.approx(counts._traffic.ratio(1.0, 100))
    others = TableDrafts(TABLE)
    others.accepted(4, [*_rows(4, 4, 4), [4, 5, 1, 9]])
    traffic = (16.0 + 100) / (12.8 + 100)
    assert others.ratio == pytest.approx((12.0 + 40 * traffic) / (9.6 + 40))


@pytest.mark.parametrize("num_requests", [1, 32])
def test_what_present_requests_show_fades_by_rounds_at_anyat_load(num_requests: int):
    counts = TableDrafts(TABLE)
    counts.accepted(4, _rows(*[4] * num_requests))
    for _ in range(20):
        counts.accepted(0, _rows(*[0] * num_requests))  # shows nothing
    kept, traffic = 0.95**20 * num_requests, counts._traffic.ratio(1.0, 100)
    assert counts.ratio == pytest.approx((4.0 * kept + 40 * traffic) / (3.2 * kept + 40)) and traffic > 1


@pytest.mark.parametrize(("num_requests", "num_tokens", "share"), [(1, 256, 0.6), (8, 96, 0.8)])
def test_requests_that_want_different_numbers_one_after_the_other_get_them(
    num_requests: int, num_tokens: int, share: float
):
    """Groups of requests with 90% and 30% of the drafts accepted, beside a table of both together. A round is read
    after the next one was launched. Acceptance of the traffic alone is right in 2% of the rounds."""
    costs, rates, generator = {1: 1.0, 2: 1.06, 4: 1.2, 6: 1.34}, (0.9, 0.3), random.Random(7)
    tpot_ms = [sum(cost / _tokens(k, rate) for rate in rates) / 2 for k, cost in costs.items()]
    shares = [[rate**n / _tokens(6, rate) for n in range(7)] for rate in rates]
    accepted = tuple(sum(s[n + 1] for s in shares) / sum(s[n] for s in shares) for n in range(6))
    counts = TableDrafts(replace(TABLE, acceptance=accepted, loads=(at_load(num_requests, tpot_ms, list(costs)),)))
    unread: list[tuple[int, list[list[int]]]] = []
    right = []
    for number in range(24):
        rate = rates[number % 2]
        best = min(cost / _tokens(k, rate) for k, cost in costs.items())
        left = [num_tokens] * num_requests
        while left:
            chosen, rows = counts.choose(num_requests), []
            for at, tokens in enumerate(left):
                count = next((n for n in range(chosen) if generator.random() > rate), chosen)
                left[at] = tokens - count - 1
                rows.append([count, count + 1, int(left[at] <= 0), 9])
            left = [tokens for tokens in left if tokens > 0]
            right.append(costs[chosen] / _tokens(chosen, rate) < 1.05 * best)
            unread.append((chosen, rows))
            if len(unread) > 1:
                counts.accepted(*unread.pop(0))
    assert sum(right) > share * len(right)


def _tokens(num_drafts: int, rate: float) -> float:
    return sum(rate**n for n in range(num_drafts + 1))


# Two drafts give 1.75 tokens a round, one gives 1.5: the first round after a rise loses a seventh of its tokens.
@pytest.mark.parametrize(("first", "then", "num_rounds"), [(2, 1, 15), (1, 2, 10), (1, 3, 1)])
def test_a_number_changes_once_it_has_lost_what_the_change_costs(first: int, then: int, num_rounds: int):
    loads = (at_load(1, (10.1, 10.0), (1, 2)), at_load(2, (10.0, 10.1), (1, 2)), at_load(3, (10.0, 14.3), (1, 2)))
    counts = TableDrafts(replace(TABLE, acceptance=(0.5, 0.5), loads=loads))
    before, after = counts.choose(first), {1: 2, 2: 1, 3: 1}[then]
    assert before == {1: 2, 2: 1}[first], "the first number has nothing to lose"
    chosen = [counts.choose(then) for _ in range(300)]
    assert chosen == sorted(chosen, key=[before, after].index) and abs(chosen.count(before) - num_rounds) <= 1


def test_numbers_that_are_about_equal_hardly_alternate():
    """Each is 1% better in every second round."""
    loads = (at_load(1, (10.1, 10.0), (1, 2)), at_load(2, (10.0, 10.1), (1, 2)))
    counts = TableDrafts(replace(TABLE, acceptance=(0.5, 0.5), loads=loads))
    chosen = [counts.choose(1 + number % 2) for number in range(10_000)]
    assert sum(a != b for a, b in pairwise(chosen)) < 20, "of 10,000"
