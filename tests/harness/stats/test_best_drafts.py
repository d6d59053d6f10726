"""The dynamic programme against brute force: every completion of what is unknown, every sequence of rounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.harness.stats.best_drafts import (
    ACCEPTED,
    COST,
    DRAFTED,
    KNOWN,
    ROUNDS,
    Counts,
    Option,
    as_seen,
    at_best,
    at_worst,
    cheapest,
)

MOST = 2  # drafts


def walks(options, counts, left):
    """Totals of every sequence of rounds; `counts[left][drafter]`: what would be accepted."""
    if left <= 0:
        yield np.zeros(KNOWN)
        return
    for option in options:
        gain = max((min(counts[left][d], k) for d, k in option.drafts), default=0)
        own = np.array([option.cost, 1, bool(option.drafts), gain])
        for rest in walks(options, counts, left - 1 - gain):
            yield own + rest


def brute(options, counts, length):
    return min(walks(options, counts, length), key=lambda total: total[COST])


def completions(least, most):
    """All counts within the bounds, [left][drafter]; index 0 of left is not used."""
    ranges = [range(low, high + 1) for low, high in zip(least.ravel(), most.ravel(), strict=True)]
    for flat in itertools.product(*ranges):
        yield np.array(flat).reshape(least.shape)


@st.composite
def cases(draw, num_drafters=2, longest=4):
    """One request: options, bounds of counts, odds."""
    length = draw(st.integers(1, longest))
    least = np.zeros((length + 1, num_drafters), dtype=int)
    most = np.zeros_like(least)
    for left, d in itertools.product(range(1, length + 1), range(num_drafters)):
        low, high = sorted((draw(st.integers(0, MOST)), draw(st.integers(0, MOST))))
        is_seen = draw(st.booleans())
        least[left, d], most[left, d] = (low, low) if is_seen else (low, high)
    prices = st.integers(1, 40)
    options = [Option(cost=draw(prices))]
    options += [Option(cost=draw(prices), drafts=((d, k),)) for d in range(num_drafters) for k in range(1, MOST + 1)]
    if num_drafters == 2:
        options.append(Option(cost=draw(prices), drafts=((0, 1), (1, MOST))))
    odds = tuple(np.array([draw(st.integers(1, 5)) for _ in range(MOST + 1)]) / 5 for _ in range(num_drafters))
    return options, least, most, odds


def counts_of(least, most, odds):
    return Counts(least_RLD=least[None], most_RLD=most[None], length_R=np.array([len(least) - 1]), odds=odds)


@given(cases())
def test_where_all_is_seen_the_cheapest_walk_is_found(case):
    options, least, _, odds = case
    expected = brute(options, least, len(least) - 1)
    for assume in (as_seen, at_best, at_worst):
        (found,) = cheapest(options, counts_of(least, least, odds), assume)
        assert found[COST] == pytest.approx(expected[COST])
        assert found[KNOWN] == found[ROUNDS]


@given(cases(longest=3))
def test_bounds_are_those_of_all_completions(case):
    options, least, most, odds = case
    costs = [brute(options, counts, len(least) - 1)[COST] for counts in completions(least, most)]
    counts = counts_of(least, most, odds)
    low, mean, high = (cheapest(options, counts, assume)[0, COST] for assume in (at_best, as_seen, at_worst))
    assert (low, high) == (pytest.approx(min(costs)), pytest.approx(max(costs)))
    assert low - 1e-9 <= mean <= high + 1e-9


@given(cases(num_drafters=1))
def test_a_fixed_choice_is_expected_as_all_its_completions_weighted(case):
    options, least, most, (odds,) = case
    weights, totals = [], []
    for counts in completions(least, most):
        weights.append(np.prod(odds[counts[1:]]))
        totals.append(brute(options[-1:], counts, len(least) - 1))
    expected = np.average(totals, axis=0, weights=weights)
    (found,) = cheapest(options[-1:], counts_of(least, most, (odds,)), as_seen)
    assert found[:KNOWN] == pytest.approx(expected)


def test_totals_by_hand():
    """Six tokens of one request, five of another: K = 2 accepts 2, then 0, then 1 of which one is cut off."""
    seen = np.zeros((2, 7, 1), dtype=int)
    seen[0, 6], seen[0, 3], seen[0, 2] = 2, 0, 1
    seen[1, 5], seen[1, 2] = 2, 2
    counts = Counts(least_RLD=seen, most_RLD=seen, length_R=np.array([6, 5]), odds=(np.ones(3),))
    found = cheapest([Option(cost=1.5, drafts=((0, 2),))], counts, as_seen)
    assert found[:, [COST, ROUNDS, DRAFTED, ACCEPTED]].tolist() == [[4.5, 3, 3, 3], [3.0, 2, 2, 4]]


def test_a_count_known_to_be_large_enough_is_known():
    """Bounds of 1 to 2 leave no doubt about a round with one draft, but about one with two."""
    least, most = np.array([[0], [0], [1]]), np.array([[0], [0], [2]])
    counts = counts_of(least, most, (np.ones(3),))
    known = [cheapest([Option(cost=1, drafts=((0, k),))], counts, at_best)[0, KNOWN] for k in (1, 2)]
    assert known == [1, 0]
