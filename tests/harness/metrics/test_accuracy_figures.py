"""Scores and paired comparisons against values worked out by other means."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from scipy import stats

from specbench.harness.metrics.accuracy import accuracy_figures, mcnemar


def _rows(arm: str, values: list[float]) -> list[dict]:
    common = dict(arm=arm, task="gsm8k", filter="strict-match", metric="exact_match", version="3.0", num_fewshot=5)
    return [dict(common, item=i, value=v, output_sha256=str(v), num_output_tokens=3) for i, v in enumerate(values)]


def test_score_and_stderr_of_the_seeds_size():
    """The seed's table: 0.796 of 500 items has stderr 0.0180."""
    (score,) = accuracy_figures(pd.DataFrame(_rows("a", [1.0] * 398 + [0.0] * 102)), "a").scores
    assert (round(score.value, 4), round(score.stderr or 0, 4), score.n) == (0.796, 0.0180, 500)


def test_pairs():
    base, arm = [1.0] * 6 + [0.0] * 4, [1.0] * 4 + [0.0] * 5 + [1.0]
    (pair,) = accuracy_figures(pd.DataFrame(_rows("a", base) + _rows("b", arm)), "a").pairs
    assert (pair.items.won, pair.items.lost, pair.items.n) == (1, 2, 10)
    assert pair.items.difference == pytest.approx(-0.1) and pair.items.same_output == pytest.approx(0.7)
    assert pair.items.p == 1.0 and pair.items.low < -0.1 < pair.items.high


def test_items_without_a_score_are_left_out():
    """One of them must not take the interval of all others away, nor count as an item."""
    rows = [*_rows("a", [1.0, 0.0, 1.0, math.nan]), *_rows("b", [1.0, math.inf, 0.0, 1.0])]
    found = accuracy_figures(pd.DataFrame(rows), "a")
    assert [(score.arm, score.n, round(score.value, 3)) for score in found.scores] == [("a", 3, 0.667), ("b", 3, 0.667)]
    assert found.scores[0].stderr == pytest.approx((1 / 3) ** 0.5 / 3**0.5)
    (pair,) = found.pairs
    assert (pair.items.n, pair.items.won, pair.items.lost, pair.items.difference) == (2, 0, 1, -0.5)


def test_mcnemar_is_the_exact_binomial_test():
    found = mcnemar(3, 15, 500)
    assert found.p == pytest.approx(2 * stats.binom.cdf(3, 18, 0.5))
    assert found.high is not None and found.high < 0
    none = mcnemar(0, 0, 500)
    assert none.p == 1.0 and none.low is not None and none.high is not None and none.low < 0 < none.high


def test_values_that_are_not_right_or_wrong_have_no_mcnemar():
    rows = pd.DataFrame(_rows("a", [0.5, 1.0]) + _rows("b", [1.0, 1.0]))
    (pair,) = accuracy_figures(rows, "a").pairs
    assert pair.items.p is None and pair.items.difference == pytest.approx(0.25)
