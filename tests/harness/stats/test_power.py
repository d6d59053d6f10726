"""Least effects and numbers of blocks against the published table of the method, and against simulated experiments."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specbench.harness.stats.paired import paired
from specbench.harness.stats.power import as_fraction, chance, mde, pairs_for_width, pairs_needed

ROOT_2 = math.sqrt(2)


@pytest.mark.parametrize(("cv", "percent"), [(0.002, 0.28), (0.005, 0.70), (0.01, 1.4), (0.02, 2.8), (0.05, 7.0)])
def test_mde_of_ten_blocks(cv, percent):
    assert 100 * mde(ROOT_2 * cv, 10) == pytest.approx(percent, rel=0.02)


@pytest.mark.parametrize(("cv", "blocks"), [(0.002, 3), (0.005, 4), (0.01, 7), (0.02, 19), (0.05, 103)])
def test_blocks_for_two_percent(cv, blocks):
    needed = pairs_needed(math.log(1.02), ROOT_2 * cv)
    assert needed == blocks
    assert chance(math.log(1.02), ROOT_2 * cv, needed) >= 0.8 > chance(math.log(1.02), ROOT_2 * cv, needed - 1)


@pytest.mark.parametrize("num_pairs", [4, 10, 25])
def test_the_chance_is_that_of_simulated_experiments(num_pairs):
    effect, sd = 0.02, 0.025
    draws = np.random.default_rng(7).normal(effect, sd, (20_000, num_pairs))
    found = paired(draws)
    hit = ((found.p <= 0.05) & (found.mean > 0)).mean()
    assert chance(effect, sd, num_pairs) == pytest.approx(hit, abs=0.012)
    assert chance(-effect, sd, num_pairs) == chance(effect, sd, num_pairs)


def test_an_effect_of_the_least_size_is_found_four_times_in_five():
    for num_pairs in (6, 10, 20):
        assert chance(mde(0.014, num_pairs), 0.014, num_pairs) == pytest.approx(0.8, abs=0.015)


def test_without_spread():
    assert chance(0.01, 0.0, 6) == 1.0 and chance(0.0, 0.0, 6) == 0.0
    assert pairs_needed(0.01, 0.0) == 2 and mde(0.0, 6) == 0.0


def test_more_than_any_reasonable_number():
    assert pairs_needed(1e-6, 0.1) is None and pairs_for_width(1e-6, 0.1) is None


def test_width_of_the_interval():
    sd = 0.0141
    needed = pairs_for_width(0.01, sd)
    assert needed is not None

    def half(n: int) -> float:
        one = paired(np.where(np.arange(n) % 2, 1.0, -1.0))
        return float((one.high - one.low) / 2 / one.sd) * sd

    assert half(needed) <= 0.01 < half(needed - 1)


def test_as_fraction():
    assert as_fraction(math.log(1.02)) == pytest.approx(0.02) and as_fraction(math.log(0.9)) == pytest.approx(-0.1)
