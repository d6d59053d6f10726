"""Statistics for reports: spread over repeats; bootstrap intervals over clusters (prompts), or blocks and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

NUM_RESAMPLES = 2000
_SEED = 20_078  # fixed: the same raw tables always give the same report


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """A figure over repeats: median, extremes, interquartile range and number of repeats."""

    median: float
    min: float
    max: float
    iqr: float
    n: int

    @property
    def half_range_fraction(self) -> float:
        """Half of max - min as a fraction of the median: 0.02 reads `+-2 %`; nan if the median is 0."""
        return (self.max - self.min) / 2 / abs(self.median) if self.median else float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A confidence interval: ends, level, and the number of resampled clusters."""

    low: float
    high: float
    num_clusters: int
    level: float = 0.95

    def describe(self, clusters: str) -> str:
        """How it was made, for the note below a table; `clusters` names what was resampled."""
        return f"{self.level:.0%} percentile bootstrap over {self.num_clusters} {clusters}, {NUM_RESAMPLES} resamples"


def spread(values: Sequence[float]) -> Spread:
    """Spread of at least one value."""
    assert len(values) > 0, "spread of no values"
    return spreads({"": values})[""]


def spreads(values: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """The spread of each; figures with the same number of values are looked at together."""
    found: dict[str, Spread] = {}
    for n in {len(own) for own in values.values()}:
        names = [name for name, own in values.items() if len(own) == n]
        array = np.array([values[name] for name in names], dtype=float)
        lows, medians, highs = np.quantile(array, [0.25, 0.5, 0.75], axis=1)
        columns = (medians, array.min(axis=1), array.max(axis=1), highs - lows)
        for name, *own in zip(names, *(column.tolist() for column in columns), strict=True):
            found[name] = Spread(median=own[0], min=own[1], max=own[2], iqr=own[3], n=n)
    return {name: found[name] for name in values}


def under(prefix: str, figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """The same under names that start with `prefix` and a dot."""
    return {f"{prefix}.{name}": value for name, value in figures.items()}


def percentiles(values: ArrayLike, *ranks: int) -> dict[str, float]:
    """`{"p50": ..., ...}` by linear interpolation; empty for no values."""
    array = np.asarray(values, dtype=float)
    if not array.size:
        return {}
    return {f"p{rank}": float(value) for rank, value in zip(ranks, np.percentile(array, ranks), strict=True)}


def ratio_interval(numerators: ArrayLike, denominators: ArrayLike) -> Interval | None:
    """95 % interval of sum(numerators) / sum(denominators), resampling clusters; None below two clusters.

    Entry i of both sums one cluster (a request, a prompt). Percentile bootstrap: its coverage is below nominal for
    fewer than about ten clusters, which is why the number of clusters is part of the result.
    """
    top = np.asarray(numerators, dtype=float)
    bottom = np.asarray(denominators, dtype=float)
    if len(top) < 2:
        return None
    rng = np.random.default_rng(_SEED)
    uniform = np.full(len(top), 1 / len(top))
    ratios = []
    for _ in range(NUM_RESAMPLES // 100):  # in slices: the counts of all resamples at once may not fit
        counts = rng.multinomial(len(top), uniform, size=100)
        ratios.append((counts @ top) / (counts @ bottom))
    low, high = np.quantile(np.concatenate(ratios), [0.025, 0.975])
    return Interval(low=float(low), high=float(high), num_clusters=len(top))


def crossed_interval(values_BP: NDArray[np.float64]) -> Interval | None:
    """95 % interval of the mean over prompts P of a prompt's mean over blocks B, both resampled; nan: no value.

    None if no prompt has values in two blocks, because then no spread contains what one block shares (the state of the
    machine at that time). None for a single prompt. Each draw takes n - 1 of n, as in `crossover.py`. The clusters are
    the prompts.
    """
    known_BP = np.isfinite(values_BP)
    num_blocks, num_prompts = values_BP.shape
    if num_prompts < 2 or known_BP.sum(axis=0).max(initial=0) < 2:
        return None
    rng = np.random.default_rng(_SEED)

    def counts(n: int) -> NDArray[np.float64]:
        return rng.multinomial(n - 1, np.full(n, 1 / n), size=100).astype(float)

    slices = [crossed_mean(values_BP, counts(num_blocks), counts(num_prompts)) for _ in range(NUM_RESAMPLES // 100)]
    means = np.concatenate(slices)
    low, high = np.quantile(means[np.isfinite(means)], [0.025, 0.975])
    return Interval(low=float(low), high=float(high), num_clusters=num_prompts)


def crossed_mean(
    values_BP: NDArray[np.float64], blocks_RB: NDArray[np.float64], prompts_RP: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean over prompts of a prompt's mean over blocks [R], each with its multiplicity in resample R; nan if there
    is none."""
    known_BP = np.isfinite(values_BP)
    num_RP = blocks_RB @ known_BP
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_RP = np.where(num_RP > 0, (blocks_RB @ np.where(known_BP, values_BP, 0.0)) / num_RP, 0.0)
        weight_RP = prompts_RP * (num_RP > 0)
        return np.asarray((weight_RP * mean_RP).sum(axis=1) / weight_RP.sum(axis=1))
