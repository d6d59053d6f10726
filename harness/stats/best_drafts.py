"""The cost of an output with optimally chosen rounds: dynamic programming over its positions.

A drafter that always drafts the same after the same tokens has one count for each position of an output: how many of
its drafts would be accepted in a round that begins there. A round with K drafts keeps min(count, K), so every sequence
of rounds is a path over positions. Unobserved counts are bounded, or sampled from the observed ones.

Shapes: R requests, L tokens left to emit, D drafters, C cases (a count of each drafter), O options for a round, Q
quantities that add up over rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COST, ROUNDS, DRAFTED, ACCEPTED, KNOWN = range(5)
"""Quantities: cost; rounds; of these, with drafts; accepted drafts; rounds whose outcome was known for all options."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """A kind of round. `drafts`: (drafter, K) of each drafter that runs; the longest accepted prefix is kept."""

    cost: float
    drafts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Counts:
    """least_RLD, most_RLD: bounds of the count of each drafter where L tokens are left; equal if the count was
    observed. length_R: tokens of each request that rounds emit. odds: of the counts 0, 1, ... of each drafter, all
    above 0."""

    least_RLD: Ints
    most_RLD: Ints
    length_R: Ints
    odds: tuple[Floats, ...]


Assume = Callable[[Floats, Floats], Floats]
"""(cost_RC, odds_RC) -> share_RC: the weight of each case where the count was not observed; odds of 0: impossible."""


def as_seen(cost_RC: Floats, odds_RC: Floats) -> Floats:
    """The expectation: each unseen count is drawn independently from `odds`, and is known when its round begins."""
    return odds_RC / odds_RC.sum(axis=1, keepdims=True)


def at_best(cost_RC: Floats, odds_RC: Floats) -> Floats:
    """The case with the lowest final cost."""
    return _only(np.where(odds_RC > 0, cost_RC, np.inf).argmin(axis=1), odds_RC)


def at_worst(cost_RC: Floats, odds_RC: Floats) -> Floats:
    """The case with the highest final cost."""
    return _only(np.where(odds_RC > 0, cost_RC, -np.inf).argmax(axis=1), odds_RC)


def cheapest(options: Sequence[Option], counts: Counts, assume: Assume) -> Floats:
    """Totals [R, Q] if every round is the option that makes the whole output cheapest.

    Under `at_best` and `at_worst` the costs are exactly those of the best and the worst counts that `counts` allows: no
    position is visited twice, so the extremes of all positions are reached together.
    """
    cases_CD = np.array(list(itertools.product(*(range(len(odds)) for odds in counts.odds))))
    odds_C = np.prod([odds[cases_CD[:, d]] for d, odds in enumerate(counts.odds)], axis=0)
    gain_CO = np.array([[max((min(case[d], k) for d, k in o.drafts), default=0) for o in options] for case in cases_CD])
    step_COQ = np.zeros((*gain_CO.shape, KNOWN + 1))
    step_COQ[..., COST] = [option.cost for option in options]
    step_COQ[..., ROUNDS] = 1
    step_COQ[..., DRAFTED] = [bool(option.drafts) for option in options]
    step_COQ[..., ACCEPTED] = gain_CO
    num_requests, longest = len(counts.length_R), int(counts.length_R.max())
    value_RLQ = np.zeros((num_requests, longest + 1, KNOWN + 1))
    for left in range(1, longest + 1):
        least_RD, most_RD = counts.least_RLD[:, None, left], counts.most_RLD[:, None, left]
        possible_RC = np.all((least_RD <= cases_CD) & (cases_CD <= most_RD), axis=-1)
        total_RCOQ = value_RLQ[:, np.maximum(left - 1 - gain_CO, 0)] + step_COQ
        best_RC = total_RCOQ[..., COST].argmin(axis=-1)
        chosen_RCQ = np.take_along_axis(total_RCOQ, best_RC[..., None, None], axis=2)[:, :, 0]
        share_RC = assume(chosen_RCQ[..., COST], possible_RC * odds_C)
        value_RLQ[:, left] = (share_RC[..., None] * chosen_RCQ).sum(axis=1)
        value_RLQ[:, left, KNOWN] += _is_known(possible_RC, gain_CO)
    return value_RLQ[np.arange(num_requests), counts.length_R]


def _is_known(possible_RC: NDArray[np.bool_], gain_CO: Ints) -> NDArray[np.bool_]:
    """Whether all possible cases have the same outcome, whatever the option."""
    most_RO = np.where(possible_RC[..., None], gain_CO, -1).max(axis=1)
    least_RO = np.where(possible_RC[..., None], gain_CO, gain_CO.max() + 1).min(axis=1)
    return (most_RO == least_RO).all(axis=-1)


def _only(chosen_R: Ints, odds_RC: Floats) -> Floats:
    return np.eye(odds_RC.shape[1])[chosen_R]
