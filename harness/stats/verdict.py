"""From paired figures to a verdict: improved, regressed, equivalent, or inconclusive and how many more pairs it takes.

improved, regressed   the difference is significant (Holm over the gated metrics) and at least the smallest that matters
equivalent            the whole interval is closer to no difference than that
inconclusive          anything else; this never means "no change"
exploratory           not testable: fewer than MIN_PAIRS pairs, or pairs whose spread is not that of a comparison
no data               the metric has no figure, or only one
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specbench.harness.stats.paired import Paired, Shared, holm_of_known, paired, signed_rank_p, widened
from specbench.harness.stats.power import ALPHA, as_fraction, mde_of, pairs_for_width, pairs_needed

IMPROVED, REGRESSED = "improved", "regressed"
EQUIVALENT, INCONCLUSIVE = "equivalent", "inconclusive"
EXPLORATORY, NO_DATA = "exploratory", "no data"
MIN_PAIRS = 6
"""Below it the exact signed rank cannot reach p < 0.05."""
MIN_EFFECT = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A compared metric. `better`: lower or higher. `unit`: of the figure, empty for counts; `pairs`: what a pair
    is."""

    name: str
    better: str
    pairs: str
    unit: str = ""
    gated: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Pairs (A, B) of one metric, positive figures, and how they are judged.

    min_effect: the smallest change that matters, a fraction. alpha: chance of a false change over all metrics that are
    tested together. shared: noise that all pairs share, which their spread does not show. no_verdict: why they must not
    be tested; empty if they may. num_dropped: pairs left out because they are not positive numbers. note: a remark
    about them.
    """

    metric: Metric
    values: Sequence[tuple[float, float]]
    min_effect: float = MIN_EFFECT
    alpha: float = ALPHA
    shared: Shared | None = None
    no_verdict: str = ""
    num_dropped: int = 0
    note: str = ""

    @property
    def log_ratios(self) -> NDArray[np.float64]:
        """ln(b / a) of each pair."""
        logs = np.log(np.asarray(self.values, dtype=float).reshape(-1, 2))
        return np.asarray(logs[:, 1] - logs[:, 0])

    @property
    def is_testable(self) -> bool:
        return not self.no_verdict and len(self.values) >= 2

    def test(self) -> Paired:
        found = paired(self.log_ratios)
        return found if self.shared is None else widened(found, self.shared)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One metric of B against A. Changes are fractions of A (-0.02: 2 % less).

    a, b: geometric means over the pairs, so that b / a - 1 is `change`. low, high: its 95 % interval. least_effect: the
    minimum detectable effect, the smallest true change that this number of pairs detects in 80 % of all experiments. p:
    paired t; p_holm: the same among the gated metrics; p_signed_rank: exact, as a check. cv: coefficient of variation
    of one side within a pair. more_pairs: how many more pairs an inconclusive verdict needs; None if no reasonable
    number is enough.

    If all pairs share a source of noise (`Shared`), the interval, p and least_effect include it. p_signed_rank and
    more_pairs are then None: the former cannot include it, and more pairs do not average it out.
    """

    metric: Metric
    verdict: str
    num_pairs: int
    a: float | None = None
    b: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    least_effect: float | None = None
    p: float | None = None
    p_holm: float | None = None
    p_signed_rank: float | None = None
    cv: float | None = None
    more_pairs: int | None = None

    @property
    def why_too_few(self) -> str:
        """Why there is no verdict, if pairs are missing: `4 prompts; a verdict takes 6`."""
        if self.num_pairs >= MIN_PAIRS:
            return ""
        return f"{self.num_pairs} {self.metric.pairs}; a verdict takes {MIN_PAIRS}"


def decide(
    result: Paired, p_adjusted: ArrayLike, better: str, min_effect: float = MIN_EFFECT, alpha: float = ALPHA
) -> NDArray[np.str_]:
    """The verdict of each experiment of `result`, by the rules of the module; `p_adjusted` is Holm's (or plain) p.

    `min_effect` is the smallest change that matters, a fraction; as a ratio it is the same in both directions.
    """
    margin = math.log1p(min_effect)
    grown = result.mean > 0
    counts = (np.asarray(p_adjusted) <= alpha) & (np.abs(result.mean) >= margin)
    inside = (result.low >= -margin) & (result.high <= margin)
    by_rule = np.where(
        counts, np.where(grown == (better == "higher"), IMPROVED, REGRESSED), np.where(inside, EQUIVALENT, INCONCLUSIVE)
    )
    return by_rule if result.num_pairs >= MIN_PAIRS else np.full_like(by_rule, EXPLORATORY, dtype="<U12")


def compare(samples: Sequence[Pairs]) -> list[Comparison]:
    """B against A for each of `samples`; Holm over the gated metrics that can be tested.

    Metrics that are not gated get an interval and the verdict `exploratory`; pairs that must not be tested get only the
    change.
    """
    tests = [pairs.test() if pairs.is_testable else None for pairs in samples]
    gated = [float(test.p) if test and pairs.metric.gated else None for pairs, test in zip(samples, tests, strict=True)]
    return [
        comparison(pairs, test, p_holm) if test else _untested(pairs)
        for pairs, test, p_holm in zip(samples, tests, holm_of_known(gated), strict=True)
    ]


def _untested(pairs: Pairs) -> Comparison:
    if not pairs.values:
        return Comparison(metric=pairs.metric, verdict=NO_DATA, num_pairs=0)
    a, b = (math.exp(float(np.mean(np.log(side)))) for side in zip(*pairs.values, strict=True))
    num_pairs = len(pairs.values)
    return Comparison(metric=pairs.metric, verdict=EXPLORATORY, num_pairs=num_pairs, a=a, b=b, change=b / a - 1)


def comparison(pairs: Pairs, test: Paired, p_holm: float | None) -> Comparison:
    """One metric from its pairs and their test. p_holm: adjusted for the other tested metrics; None for a metric
    without a verdict."""
    verdict = EXPLORATORY
    if p_holm is not None:
        verdict = str(decide(test, p_holm, pairs.metric.better, pairs.min_effect, pairs.alpha))
    mean, sd, p = float(test.mean), float(test.sd), float(test.p)
    # Holm compares this metric's p with alpha over the metrics not yet decided: what more pairs must reach, too.
    own_alpha = pairs.alpha * p / p_holm if p_holm and p else pairs.alpha
    can_say_more = verdict == INCONCLUSIVE and pairs.shared is None
    num_pairs = len(pairs.values)
    a = float(np.exp(np.mean(np.log([a for a, _ in pairs.values]))))
    return Comparison(
        metric=pairs.metric,
        verdict=verdict,
        num_pairs=num_pairs,
        a=a,
        b=a * math.exp(mean),
        change=as_fraction(mean),
        low=as_fraction(float(test.low)),
        high=as_fraction(float(test.high)),
        least_effect=as_fraction(mde_of(float(test.error), test.freedom, pairs.alpha)),
        p=p,
        p_holm=p_holm,
        p_signed_rank=None if pairs.shared is not None else signed_rank_p(pairs.log_ratios),
        cv=sd / math.sqrt(2),
        more_pairs=_more_pairs(mean, sd, num_pairs, pairs.min_effect, own_alpha) if can_say_more else None,
    )


def _more_pairs(mean: float, sd: float, num_pairs: int, min_effect: float, alpha: float) -> int | None:
    """Additional pairs until a verdict is likely, if the effect and the spread stay as they are.

    An effect that matters must be distinguished from none, and one that does not from one that does. Never fewer than
    needed to detect the smallest effect that matters.
    """
    margin = math.log1p(min_effect)
    if abs(mean) >= margin:
        needed = pairs_needed(abs(mean), sd, alpha)
    else:
        both = pairs_needed(margin, sd, alpha), pairs_for_width(margin - abs(mean), sd)
        needed = None if None in both else max(n for n in both if n is not None)
    return None if needed is None else max(1, needed - num_pairs)
