"""Power of a paired comparison: minimum detectable effect (MDE), chance to detect an effect, pairs needed.

Effects are log ratios (0.0198 is +2 %); `sd` is the standard deviation of the pairs' log ratios, about sqrt(2) times
the coefficient of variation (CV) of one side within a block.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import scipy  # its stats take half a second, and are imported at first use

ALPHA = 0.05
POWER = 0.8
MAX_PAIRS = 10_000


def mde(sd: float, num_pairs: int) -> float:
    """Minimum detectable effect: the true log ratio that `num_pairs` (2 or more) detect with chance POWER.

    (t_{1-ALPHA/2, n-1} + t_{POWER, n-1}) * sd / sqrt(n), the usual approximation of the noncentral t.
    """
    assert num_pairs >= 2, "no spread below two pairs"
    return mde_of(sd / math.sqrt(num_pairs), num_pairs - 1)


def mde_of(error: float, freedom: int, alpha: float = ALPHA) -> float:
    """The same, from the standard error of the mean log ratio and its degrees of freedom."""
    return float((scipy.stats.t.ppf(1 - alpha / 2, freedom) + scipy.stats.t.ppf(POWER, freedom)) * error)


def chance(effect: float, sd: float, num_pairs: int, alpha: float = ALPHA) -> float:
    """Chance that the t test of `num_pairs` pairs detects a true log ratio `effect`, in its direction (noncentral
    t)."""
    if sd == 0:
        return 1.0 if effect else 0.0
    freedom = num_pairs - 1
    critical = scipy.stats.t.ppf(1 - alpha / 2, freedom)
    return float(scipy.stats.nct.sf(critical, freedom, abs(effect) / sd * math.sqrt(num_pairs)))


def pairs_needed(effect: float, sd: float, alpha: float = ALPHA) -> int | None:
    """The fewest pairs whose chance to detect `effect` is at least POWER; None beyond MAX_PAIRS."""
    assert effect > 0, "no number of pairs can detect an effect of zero"
    return _fewest(lambda n: chance(effect, sd, n, alpha) >= POWER)


def pairs_for_width(half_width: float, sd: float) -> int | None:
    """The fewest pairs whose 95 % interval is no wider than +-`half_width`; None beyond MAX_PAIRS."""
    return _fewest(lambda n: scipy.stats.t.ppf(1 - ALPHA / 2, n - 1) * sd / math.sqrt(n) <= half_width)


def _fewest(is_enough: Callable[[int], bool]) -> int | None:
    """The smallest n from 2 for which `is_enough` holds; it holds for all larger n."""
    n = 2 + bisect_left(range(2, MAX_PAIRS + 1), True, key=is_enough)
    return n if n <= MAX_PAIRS else None


def as_fraction(log_ratio: float) -> float:
    """A log ratio as a change: 0.0198 -> 0.02."""
    return math.expm1(log_ratio)
