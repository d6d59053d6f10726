"""The rules of a verdict, each with figures chosen to sit on either side of its limit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from specbench.harness.stats.paired import Shared, paired
from specbench.harness.stats.verdict import Metric, Pairs, compare, comparison, decide

TIME = Metric(name="step time", unit="ms", better="lower", pairs="blocks")
TOKENS = Metric(name="tokens per step", better="higher", pairs="prompts")
EXTRA = Metric(name="TTFT", unit="ms", better="lower", pairs="blocks", gated=False)


def pairs(change: float, noise: float = 0.0, n: int = 10, base: float = 8.0) -> list[tuple[float, float]]:
    """n pairs whose mean log ratio is exactly ln(1 + change) and whose log ratios differ by +-noise."""
    swing = np.where(np.arange(n) % 2, noise, -noise)
    return [(base, base * (1 + change) * math.exp(s)) for s in swing]


def compared(asked: dict[Metric, list[tuple[float, float]]], min_effect: float = 0.01):
    return compare([Pairs(metric=metric, values=values, min_effect=min_effect) for metric, values in asked.items()])


def verdict(metric: Metric, found: list[tuple[float, float]], min_effect: float = 0.01) -> str:
    (one,) = compared({metric: found}, min_effect)
    return one.verdict


@pytest.mark.parametrize(
    ("change", "noise", "word"),
    [
        (-0.025, 0.004, "improved"),
        (+0.025, 0.004, "regressed"),
        (+0.005, 0.004, "equivalent"),  # the difference is real, and too small to matter
        (0.0, 0.004, "equivalent"),
        (0.0, 0.02, "inconclusive"),
        (-0.025, 0.05, "inconclusive"),
        (+0.009, 0.004, "inconclusive"),  # counts, below what matters, but may reach beyond it
    ],
)
def test_the_rules_for_a_time(change, noise, word):
    assert verdict(TIME, pairs(change, noise)) == word


@pytest.mark.parametrize(("change", "word"), [(0.05, "improved"), (-0.05, "regressed"), (0.0, "equivalent")])
def test_more_tokens_are_better(change, word):
    assert verdict(TOKENS, pairs(change, 0.002)) == word


def test_the_smallest_change_that_matters():
    assert verdict(TIME, pairs(-0.03, 0.004), min_effect=0.05) == "equivalent"
    assert verdict(TIME, pairs(-0.03, 0.004), min_effect=0.02) == "improved"


def test_below_six_pairs_there_is_no_verdict():
    assert verdict(TIME, pairs(-0.5, 0.001, n=5)) == "exploratory"
    assert verdict(TIME, pairs(-0.5, 0.001, n=6)) == "improved"
    (one,) = compared({TIME: pairs(-0.5, n=1)})
    assert (one.verdict, one.num_pairs, one.low) == ("exploratory", 1, None) and one.change == pytest.approx(-0.5)
    (none,) = compared({TIME: []})
    assert (none.verdict, none.num_pairs, none.change) == ("no data", 0, None)


def test_figures_of_a_comparison():
    (one,) = compared({TIME: pairs(-0.025, 0.004)})
    assert one.a == pytest.approx(8.0) and one.b == pytest.approx(8.0 * 0.975)
    assert one.change == pytest.approx(-0.025) and one.low < one.change < one.high < 0
    sd = 0.004 * math.sqrt(10 / 9)
    assert one.cv == pytest.approx(sd / math.sqrt(2))
    assert one.least_effect == pytest.approx((2.262 + 0.883) * sd / math.sqrt(10), rel=0.01)
    assert one.p == one.p_holm and one.p_signed_rank == pytest.approx(2 / 2**10)


def test_holm_counts_the_gated_metrics_only():
    other = Metric(name="TPOT", better="lower", pairs="blocks")
    found = compared({TIME: pairs(-0.02, 0.004), other: pairs(0.0, 0.004), EXTRA: pairs(-0.3, 0.001)})
    assert [c.p_holm is None for c in found] == [False, False, True]
    assert found[0].p_holm == pytest.approx(2 * found[0].p) and found[1].p_holm == pytest.approx(found[1].p)
    assert found[2].verdict == "exploratory" and found[2].low < found[2].high < 0


def test_a_difference_that_only_counts_alone():
    """p between 0.05 / 3 and 0.05: a change by itself, none beside two metrics that do not change."""
    border = pairs(-0.021, 0.027)
    assert 0.05 / 3 < compared({TIME: border})[0].p < 0.05 and verdict(TIME, border) == "improved"
    others = {Metric(name=str(i), better="lower", pairs="blocks"): pairs(0.0, 0.03) for i in range(2)}
    assert compared({TIME: border, **others})[0].verdict == "inconclusive"


def test_what_only_holm_leaves_open_says_how_many_more():
    """A metric that counts alone and not beside others is not "too noisy"."""
    found = Pairs(metric=TIME, values=pairs(-0.021, 0.027))
    test = found.test()
    alone, beside = (comparison(found, test, p_holm) for p_holm in (float(test.p), 0.06))
    assert (alone.verdict, alone.more_pairs) == ("improved", None)
    assert beside.verdict == "inconclusive" and beside.more_pairs > 0
    shared = replace(found, shared=Shared(variance=0.0, freedom=9))
    assert comparison(shared, test, 0.06).more_pairs is None


def test_how_many_more():
    (one,) = compared({TIME: pairs(0.0, 0.02)})
    assert one.more_pairs is not None and 20 < one.more_pairs < 60
    whole = compared({TIME: pairs(0.0, 0.02, n=10 + one.more_pairs + one.more_pairs % 2)})
    assert whole[0].verdict == "equivalent"
    (near,) = compared({TIME: pairs(-0.00985, 0.02)})
    assert near.verdict == "inconclusive" and near.more_pairs is None, "at the limit no number of blocks decides"
    assert compared({TIME: pairs(-0.025, 0.004)})[0].more_pairs is None


def test_many_experiments_at_once():
    ratios = np.log([[b / a for a, b in pairs(c, 0.004)] for c in (-0.025, 0.025, 0.0)])
    found = paired(ratios)
    assert decide(found, found.p, "lower").tolist() == ["improved", "regressed", "equivalent"]
    assert decide(found, found.p, "higher").tolist() == ["regressed", "improved", "equivalent"]
    assert set(decide(paired(ratios[:, :5]), found.p, "lower").tolist()) == {"exploratory"}
