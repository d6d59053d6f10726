"""The paired t against scipy's own formulas and known values, exact figures without spread, signed rank, Holm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from specbench.harness.stats.paired import Shared, holm, paired, signed_rank_p, widened

RATIOS = [0.01, -0.02, 0.03, 0.015, 0.0, 0.022]


def test_interval_and_p_by_hand():
    found = paired(RATIOS)
    n, mean, sd = 6, np.mean(RATIOS), np.std(RATIOS, ddof=1)
    half = stats.t.ppf(0.975, n - 1) * sd / math.sqrt(n)
    assert found.num_pairs == n
    assert [float(x) for x in (found.mean, found.sd)] == pytest.approx([mean, sd])
    assert [float(x) for x in (found.low, found.high)] == pytest.approx([mean - half, mean + half])
    assert float(found.p) == pytest.approx(2 * stats.t.sf(abs(mean) / (sd / math.sqrt(n)), n - 1))


def test_many_experiments_at_once_are_those_one_by_one():
    many = np.random.default_rng(1).normal(0.01, 0.02, (5, 4, 7))
    many[2, 3] = 0.25  # one without spread among the others
    found = paired(many)
    for i in np.ndindex(5, 4):
        one = paired(many[i])
        for name in ("mean", "low", "high", "sd", "p"):
            assert getattr(found, name)[i] == pytest.approx(float(getattr(one, name))), (i, name)


@pytest.mark.parametrize(("ratio", "p"), [(0.0, 1.0), (0.3, 0.0), (math.log(2.61 / 2.6), 0.0)])
def test_pairs_without_spread_are_exact(ratio, p):
    found = paired([ratio] * 8)
    assert [float(x) for x in (found.mean, found.low, found.high)] == pytest.approx([ratio] * 3)
    assert float(found.sd) == 0 and float(found.p) == p


@given(some.lists(some.floats(-0.5, 0.5).map(lambda x: round(x, 6)), min_size=2, max_size=20))
def test_swapping_the_sides_mirrors_everything(ratios):
    found, swapped = paired(ratios), paired([-r for r in ratios])
    assert float(swapped.mean) == pytest.approx(-float(found.mean), abs=1e-12)
    assert float(swapped.low) == pytest.approx(-float(found.high), abs=1e-12)
    assert float(swapped.p) == pytest.approx(float(found.p))
    assert float(found.low) <= float(found.mean) <= float(found.high)


def test_signed_rank_reaches_its_least_p_and_skips_ties():
    assert signed_rank_p([1, 2, 3, 4, 5]) == pytest.approx(0.0625)
    assert signed_rank_p([1, 2, 3, 4, 5, 6]) == pytest.approx(0.03125)
    assert signed_rank_p([0, 0, 1, 2, 3, 4, 5, 6]) == pytest.approx(0.03125)
    assert signed_rank_p([0.0] * 8) == 1.0
    many = np.random.default_rng(2).normal(0.1, 1, 101)
    assert signed_rank_p(many) == pytest.approx(stats.wilcoxon(many, method="exact").pvalue, abs=0.01)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.02]).tolist() == pytest.approx([0.5, 0.04])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert holm([0.03]).tolist() == [0.03]


@given(some.lists(some.floats(0, 1), min_size=1, max_size=6))
def test_holm_keeps_the_order_and_lies_between_p_and_bonferroni(p):
    adjusted = holm(p)
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()
    assert (adjusted >= np.asarray(p)).all() and (adjusted <= np.minimum(1, np.asarray(p) * len(p))).all()
    both = holm([p, p[::-1]])
    assert both[0].tolist() == adjusted.tolist() and both[1][::-1].tolist() == pytest.approx(adjusted.tolist())


def test_widened_intervals_hold_what_pairs_share():
    found = paired(np.log([1.01, 1.02, 1.03, 1.02, 1.01, 1.03]))
    wide = widened(found, Shared(variance=1e-4, freedom=3))
    assert wide.error == pytest.approx(np.sqrt(found.sd**2 / 6 + 1e-4)) and wide.freedom == 3
    half = float(wide.high - wide.mean)
    assert half == pytest.approx(float(wide.mean - wide.low)) and wide.p > found.p
    # The quantile from the table, and what it means: scipy's own one is found by iteration, to its tolerance.
    assert half / wide.error == pytest.approx(3.18245, rel=1e-4)
    assert stats.t.cdf(half / wide.error, 3) == pytest.approx(0.975, abs=1e-5)
    many = widened(paired(np.log([1.01, 1.02, 1.03, 1.02, 1.01, 1.03])), Shared(variance=1e-4, freedom=30))
    assert many.freedom == 5 and many.error == wide.error, "the fewer of both"
    none = widened(paired(np.zeros(6)), Shared(variance=0.0, freedom=9))
    assert none.p == 1 and none.low == none.high == 0
    exact = widened(paired(np.full(6, 0.01)), Shared(variance=0.0, freedom=9))
    assert exact.p == 0 and exact.low == exact.mean
