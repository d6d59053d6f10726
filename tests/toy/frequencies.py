"""Whether counts are those of a distribution: chi-square with rare cells merged."""

from __future__ import annotations

from scipy import stats
from torch import Tensor


def p_value(counts: Tensor, probabilities: Tensor) -> float:
    """Cells below five expected counts count as one; what has no probability must not have been counted."""
    num = float(counts.sum())
    expected = probabilities.double() * num
    assert not counts[expected == 0].any(), "a token outside the support was drawn"
    large = expected >= 5
    observed = [*counts[large].tolist(), float(counts[~large].sum())]
    wanted = [*expected[large].tolist(), float(expected[~large].sum())]
    if wanted[-1] < 2:  # too small for the test: merged into its neighbour
        observed, wanted = [*observed[:-2], sum(observed[-2:])], [*wanted[:-2], sum(wanted[-2:])]
    return float(stats.chisquare(observed, wanted, sum_check=False).pvalue)
