"""Paired comparison of two arms: t interval over log ratios, exact signed rank as a check, Holm over several metrics.

A pair is two measurements made back to back on the same input: a block for times, a prompt for acceptance. Its log
ratio is ln(B / A), so drift that both sides share cancels. The functions take any number of experiments at once: the
last axis has the pairs of one experiment. scipy does the statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # its stats take half a second, and are imported at first use
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
_EXACT_ZERO = 1e-12  # log ratios closer to their mean than this are equal: the rest is the rounding of log

_MAX_EXACT_PAIRS = 100  # the exact distribution takes time cubic in the number of pairs


@dataclass(frozen=True, kw_only=True, slots=True)
class Paired:
    """Mean log ratio of the pairs of each experiment (all arrays of one shape, scalars for one experiment).

    low, high: ends of the 95 % t interval of the mean. sd: standard deviation of the log ratios (n - 1). p: two-sided,
    of "no difference". num_pairs: pairs in each. error: standard error of the mean; freedom: its degrees of freedom.
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    sd: NDArray[np.float64]
    error: NDArray[np.float64]
    p: NDArray[np.float64]
    num_pairs: int
    freedom: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """Noise that all pairs of an experiment share, so that their spread cannot show it: the variance of their mean log
    ratio between experiments, and the degrees of freedom of its estimate."""

    variance: ArrayLike
    freedom: int


def paired(log_ratios: ArrayLike) -> Paired:
    """Paired t over the last axis of `log_ratios` [..., pairs]; at least two pairs.

    Pairs without any spread (counts that are the same in every block) have no t: their interval is the point, and p is
    1 at no difference and 0 at any.
    """
    ratios = np.asarray(log_ratios, dtype=float)
    num_pairs = ratios.shape[-1]
    assert num_pairs >= 2, "an interval needs two pairs"
    mean, sd = ratios.mean(axis=-1), ratios.std(axis=-1, ddof=1)
    exact = np.asarray(np.abs(ratios - mean[..., None]).max(axis=-1) < _EXACT_ZERO)
    with np.errstate(divide="ignore", invalid="ignore"):
        test = scipy.stats.ttest_1samp(np.where(exact[..., None], np.arange(num_pairs), ratios), 0.0, axis=-1)
        interval = test.confidence_interval(LEVEL)
    return Paired(
        mean=mean,
        low=np.where(exact, mean, interval.low),
        high=np.where(exact, mean, interval.high),
        sd=np.where(exact, 0.0, sd),
        error=np.where(exact, 0.0, sd) / np.sqrt(num_pairs),
        p=np.where(exact, np.abs(mean) < _EXACT_ZERO, test.pvalue),
        num_pairs=num_pairs,
        freedom=num_pairs - 1,
    )


def widened(result: Paired, shared: Shared) -> Paired:
    """`result` with the noise that its pairs share: both variances are added, and t has the smaller degrees of freedom.

    Welch's approximation lies between the smaller one and their sum, so this interval is never too narrow by
    comparison.
    """
    error = np.sqrt(result.error**2 + np.asarray(shared.variance, dtype=float))
    freedom = min(result.freedom, shared.freedom)
    half = scipy.stats.t.ppf((1 + LEVEL) / 2, freedom) * error
    none = np.abs(result.mean) < _EXACT_ZERO
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * scipy.stats.t.sf(np.abs(result.mean) / error, freedom)
    p = np.where(error > 0, p, none)
    return replace(result, low=result.mean - half, high=result.mean + half, error=error, p=p, freedom=freedom)


def signed_rank_p(log_ratios: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's exact signed-rank test over the pairs of one experiment: a check without normality.

    Pairs without a difference are left out; 1 if none remains. Below 6 pairs it cannot reach 0.05 (smallest p: 0.0625
    with 5 pairs, 0.031 with 6). Beyond a hundred pairs it is the normal approximation.
    """
    ratios = np.asarray(log_ratios, dtype=float)
    nonzero = ratios[np.abs(ratios) >= _EXACT_ZERO]
    method = "exact" if len(nonzero) <= _MAX_EXACT_PAIRS else "approx"
    return float(scipy.stats.wilcoxon(nonzero, method=method).pvalue) if len(nonzero) else 1.0


def holm_of_known(p: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p among those that are known; None for the others."""
    adjusted = iter(holm([value for value in p if value is not None]).tolist())
    return [None if value is None else next(adjusted) for value in p]


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Holm's adjusted p over the last axis [..., metrics]: below alpha if the metric is still significant among the
    others.

    Source: Holm 1979, step down: the smallest times m, the next times m - 1, ..., never below the previous one.
    """
    values = np.asarray(p, dtype=float)
    num_metrics = values.shape[-1]
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1) * (num_metrics - np.arange(num_metrics))
    stepped = np.minimum(np.maximum.accumulate(ordered, axis=-1), 1.0)
    adjusted = np.empty_like(values)
    np.put_along_axis(adjusted, order, stepped, axis=-1)
    return adjusted
