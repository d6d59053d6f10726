"""From paired figures to a verdict: improved, regressed, equivalent, or inconclusive and how many more pairs it takes.

improved, regressed   the difference counts (Holm over the gated metrics) and is at least the smallest that matters
equivalent            the whole interval lies closer to no difference than that
inconclusive          anything else; it never reads "no change"
exploratory           fewer than LEAST_PAIRS pairs, or pairs whose spread is not that of a comparison: no test can tell
no data               the metric has no figure, or only one
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specbench.harness.stats.paired import Paired, Shared, holm, paired, signed_rank_p, widened
from specbench.harness.stats.power import ALPHA, as_fraction, least_effect_of, pairs_for_width, pairs_needed

IMPROVED, REGRESSED = "improved", "regressed"
EQUIVALENT, INCONCLUSIVE = "equivalent", "inconclusive"
EXPLORATORY, NO_DATA = "exploratory", "no data"
LEAST_PAIRS = 6
"""Below it the exact signed rank cannot reach p < 0.05."""
MIN_EFFECT = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """What is compared. `better`: lower or higher. `unit`: of the figure, empty for counts; `pairs`: what a pair is."""

    name: str
    better: str
    pairs: str
    unit: str = ""
    gated: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One metric of B against A. Changes are fractions of A (-0.02: 2 % less).

    a, b: geometric means over the pairs, so that b / a - 1 is `change`. low, high: its 95 % interval. least_effect: the
    smallest true change that so many pairs with this spread find in 80 % of all experiments. p: paired t; p_holm: the
    same among the gated metrics; p_signed_rank: exact, as a check. cv: coefficient of variation of one side within a
    pair. more_pairs: how many more it takes where the verdict is inconclusive, None where no reasonable number does.
    Where all pairs share something (`Shared`), the interval, p and least_effect hold it; the signed rank cannot and is
    None, and so is more_pairs: more of such pairs say no more of it.
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


def decide(
    found: Paired, p_adjusted: ArrayLike, better: str, min_effect: float = MIN_EFFECT, alpha: float = ALPHA
) -> NDArray[np.str_]:
    """The verdict of each experiment of `found`, by the rules of the module; `p_adjusted` is Holm's (or plain) p.

    `min_effect` is the smallest change that matters, a fraction; it counts alike up and down, as a ratio.
    """
    margin = math.log1p(min_effect)
    grown = found.mean > 0
    counts = (np.asarray(p_adjusted) <= alpha) & (np.abs(found.mean) >= margin)
    inside = (found.low >= -margin) & (found.high <= margin)
    by_rule = np.where(
        counts,
        np.where(grown == (better == "higher"), IMPROVED, REGRESSED),
        np.where(inside, EQUIVALENT, INCONCLUSIVE),
    )
    return by_rule if found.num_pairs >= LEAST_PAIRS else np.full_like(by_rule, EXPLORATORY, dtype="<U12")


def log_ratios(pairs: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
    """ln(b / a) of each pair (a, b)."""
    values = np.log(np.asarray(pairs, dtype=float).reshape(-1, 2))
    return np.asarray(values[:, 1] - values[:, 0])


def ratio_test(pairs: Sequence[tuple[float, float]], shared: Shared | None = None) -> Paired:
    """The paired test of two pairs or more, with what they share where that is known."""
    found = paired(log_ratios(pairs))
    return found if shared is None else widened(found, shared)


def compare(
    pairs: Mapping[Metric, Sequence[tuple[float, float]]],
    min_effect: float = MIN_EFFECT,
    alpha: float = ALPHA,
    shared: Mapping[Metric, Shared] | None = None,
) -> list[Comparison]:
    """B against A for each metric, from its pairs (a, b), positive figures; Holm over the gated metrics that have data.

    Metrics that are not gated get an interval and no verdict but `exploratory`. `shared`: of metrics whose pairs have
    something in common that their spread does not show.
    """
    common = shared or {}
    tests = {m: ratio_test(found, common.get(m)) for m, found in pairs.items() if len(found) >= 2}
    gated = [m for m in tests if m.gated]
    adjusted = dict(zip(gated, holm([float(tests[m].p) for m in gated]), strict=True)) if gated else {}
    compared = []
    for metric, found in pairs.items():
        if metric not in tests:
            compared.append(untested(metric, found))
            continue
        p_holm = float(adjusted[metric]) if metric in adjusted else None
        is_shared = metric in common
        compared.append(comparison(metric, found, tests[metric], p_holm, min_effect, alpha, is_shared=is_shared))
    return compared


def untested(metric: Metric, pairs: Sequence[tuple[float, float]]) -> Comparison:
    """The change alone: of pairs whose spread is not that of a comparison, no interval would be true."""
    if not pairs:
        return Comparison(metric=metric, verdict=NO_DATA, num_pairs=0)
    a, b = (math.exp(float(np.mean(np.log(side)))) for side in zip(*pairs, strict=True))
    return Comparison(metric=metric, verdict=EXPLORATORY, num_pairs=len(pairs), a=a, b=b, change=b / a - 1)


def comparison(
    metric: Metric,
    found: Sequence[tuple[float, float]],
    test: Paired,
    p_holm: float | None,
    min_effect: float = MIN_EFFECT,
    alpha: float = ALPHA,
    *,
    is_shared: bool = False,
) -> Comparison:
    """One metric from its pairs and their test (`tested`). p_holm: among whatever is tested beside it; None for a
    metric that gets no verdict. is_shared: `test` holds what the pairs have in common."""
    verdict = EXPLORATORY if p_holm is None else str(decide(test, p_holm, metric.better, min_effect, alpha))
    mean, sd, p = float(test.mean), float(test.sd), float(test.p)
    # Holm compares this metric's p with alpha over the metrics not yet decided: what more pairs must reach, too.
    own_alpha = alpha * p / p_holm if p_holm and p else alpha
    can_say_more = verdict == INCONCLUSIVE and not is_shared
    a = float(np.exp(np.mean(np.log([a for a, _ in found]))))
    return Comparison(
        metric=metric,
        verdict=verdict,
        num_pairs=len(found),
        a=a,
        b=a * math.exp(mean),
        change=as_fraction(mean),
        low=as_fraction(float(test.low)),
        high=as_fraction(float(test.high)),
        least_effect=as_fraction(least_effect_of(float(test.error), test.freedom, alpha)),
        p=p,
        p_holm=p_holm,
        p_signed_rank=None if is_shared else signed_rank_p(log_ratios(found)),
        cv=sd / math.sqrt(2),
        more_pairs=_more_pairs(mean, sd, len(found), min_effect, own_alpha) if can_say_more else None,
    )


def _more_pairs(mean: float, sd: float, num_pairs: int, min_effect: float, alpha: float) -> int | None:
    """Pairs beyond `num_pairs` until a verdict is likely, were the effect and the spread as they look now.

    An effect that matters must be told from none; one that does not must be told from one that does. Never less than
    what finds the smallest effect that matters.
    """
    margin = math.log1p(min_effect)
    if abs(mean) >= margin:
        needed = pairs_needed(abs(mean), sd, alpha)
    else:
        both = pairs_needed(margin, sd, alpha), pairs_for_width(margin - abs(mean), sd)
        needed = None if None in both else max(n for n in both if n is not None)
    return None if needed is None else max(1, needed - num_pairs)
