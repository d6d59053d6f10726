"""The rows of `bound` that were not measured: what recorded rounds imply for other choices of drafts.

A chain's drafts depend only on the prompt and the tokens so far, so the number of drafts accepted after the n-th token
of an output is one fixed count per drafter, whichever round observes it. An arm with K shows min(count, K) at the
positions where its rounds began. Positions at which no arm of the drafter began a round are bounded by all possible
counts, and estimated from the observed ones. A round costs what rounds with the same number of drafts took in this run,
at its load, interpolated linearly between measured values of K.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specbench.harness.judge.drafters import Drafter, Recorded, Request
from specbench.harness.stats.best_drafts import (
    COST,
    Assume,
    Counts,
    Floats,
    Option,
    as_seen,
    at_best,
    at_worst,
    cheapest,
)

_ASSUMPTIONS: tuple[Assume, ...] = (as_seen, at_best, at_worst)
Outputs = Mapping[Request, tuple[int, ...]]
Totals = Mapping[Assume, Floats]  # [R, Q] by assumption


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundRow:
    """`what`: measured, fixed (one K for all rounds), request, round (the best K for each), both (two drafters in every
    round, the longer accepted prefix is kept), either (the best drafter and K for each round), perfect (all drafts
    accepted). `drafts`: K. `tpot_ms`: time per output token after the first, over all tokens; `low_ms`, `high_ms`: its
    bounds over all possible counts at unseen positions. `ratio`: TPOT of no-spec over it; `low`, `high` likewise.
    `known`: share of the rounds whose outcome was observed. `marks`: of a measured arm."""

    name: str
    what: str
    drafts: str
    tpot_ms: float
    low_ms: float
    high_ms: float
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    acceptance_length: float | None
    tokens_per_forward: float
    known: float | None = None
    marks: tuple[str, ...] = ()


def round_costs(base: Recorded, drafter: Drafter) -> list[float]:
    """ms per round with 0, 1, ... drafts, interpolated linearly between the measured ones."""
    measured = {0: base.round_ms, **{k: arm.round_ms for k, arm in sorted(drafter.arms.items())}}
    return np.interp(range(drafter.most + 1), list(measured), list(measured.values())).tolist()


def better_rows(drafters: Sequence[Drafter], tables: Sequence[list[float]], outputs: Outputs) -> Iterator[BoundRow]:
    """Rows for each drafter, each pair that can draft differently, and perfect drafts. `tables`: `round_costs` of each
    drafter. `outputs`: of the requests that all arms served. Ratios are filled in later."""
    counts = _counts(drafters, outputs)
    for d, (drafter, costs) in enumerate(zip(drafters, tables, strict=True)):
        name, own, span = drafter.name, _of(counts, d), f"0 to {drafter.most}"
        options = [Option(cost=costs[0]), *_options(0, costs)]
        alone = {k: _alone(replace(drafter, arms={k: arm}), arm, outputs) for k, arm in drafter.arms.items()}
        fixed = [_totals([option], alone.get(k, own)) for k, option in enumerate(options)]
        k, chosen = _best(fixed)
        yield _row(f"{name}, best K for all rounds", "fixed", str(k), chosen, counts)
        by_request = {assume: _cheapest_request([one[assume] for one in fixed]) for assume in _ASSUMPTIONS}
        yield _row(f"{name}, best K for each request", "request", span, by_request, counts)
        yield _row(f"{name}, best K for each round", "round", span, _totals(options, own), counts)
    for a, b in itertools.combinations(range(len(drafters)), 2):
        if not drafters[a].adds_to(drafters[b]):
            continue
        own, names = _of(counts, a, b), f"{drafters[a].name} and {drafters[b].name}"
        pairs = list(itertools.product(sorted(drafters[a].arms), sorted(drafters[b].arms)))
        costs = [tables[a][i] + tables[b][j] - tables[a][0] for i, j in pairs]
        both = [Option(cost=ms, drafts=((0, i), (1, j))) for ms, (i, j) in zip(costs, pairs, strict=True)]
        n, chosen = _best([_totals([option], own) for option in both])
        yield _row(f"{names} in every round", "both", "{} + {}".format(*pairs[n]), chosen, counts)
        options = [Option(cost=tables[a][0]), *_options(0, tables[a]), *_options(1, tables[b])]
        span = f"0 to {max(drafters[a].most, drafters[b].most)}"
        yield _row(f"{names}, best of both and K for each round", "either", span, _totals(options, own), counts)
    for d, (drafter, costs) in enumerate(zip(drafters, tables, strict=True)):
        all_RLD = np.full_like(counts.least_RLD[..., :1], drafter.most)
        perfect = replace(_of(counts, d), least_RLD=all_RLD, most_RLD=all_RLD)
        n, chosen = _best([_totals([option], perfect) for option in _options(0, costs)])
        row = _row(f"{drafter.name}, perfect drafts", "perfect", str(n + 1), chosen, counts)
        yield replace(row, known=None)


def _options(drafter: int, costs: Sequence[float]) -> list[Option]:
    """Rounds with 1, 2, ... drafts."""
    return [Option(cost=ms, drafts=((drafter, k),)) for k, ms in enumerate(costs) if k]


def _alone(drafter: Drafter, arm: Recorded, outputs: Outputs) -> Counts:
    """Measured counts of one arm are kept as they are, whatever arms with another K show, and on its own output if that
    is as long as the majority's."""
    own = {key: arm.outputs[key] for key in outputs}
    return _counts(
        [drafter], {key: own[key] if len(own[key]) == len(tokens) else tokens for key, tokens in outputs.items()}
    )


def _of(counts: Counts, *drafters: int) -> Counts:
    least_RLD, most_RLD = (bound[..., list(drafters)] for bound in (counts.least_RLD, counts.most_RLD))
    odds = tuple(counts.odds[d] for d in drafters)
    return replace(counts, least_RLD=least_RLD, most_RLD=most_RLD, odds=odds)


def _totals(options: Sequence[Option], counts: Counts) -> Totals:
    return {assume: cheapest(options, counts, assume) for assume in _ASSUMPTIONS}


def _best(plans: Sequence[Totals]) -> tuple[int, Totals]:
    """(the cheapest option with observed counts, the totals of the cheapest under each assumption)."""
    n = {assume: int(np.argmin([plan[assume][:, COST].sum() for plan in plans])) for assume in _ASSUMPTIONS}
    return n[as_seen], {assume: plans[n[assume]][assume] for assume in _ASSUMPTIONS}


def _cheapest_request(plans: Sequence[Floats]) -> Floats:
    plans_PRQ = np.stack(plans)
    return plans_PRQ[plans_PRQ[..., COST].argmin(axis=0), np.arange(plans_PRQ.shape[1])]


def _row(name: str, what: str, drafts: str, totals: Totals, counts: Counts) -> BoundRow:
    num_tokens = int(counts.length_R.sum())
    low_ms, high_ms = (float(totals[assume][:, COST].sum() / num_tokens) for assume in (at_best, at_worst))
    cost, rounds, drafted, accepted, known = totals[as_seen].sum(axis=0).tolist()
    return BoundRow(
        name=name,
        what=what,
        drafts=drafts,
        tpot_ms=cost / num_tokens,
        low_ms=low_ms,
        high_ms=high_ms,
        acceptance_length=1 + accepted / drafted if drafted else None,
        tokens_per_forward=num_tokens / rounds,
        known=known / rounds,
    )


def _counts(drafters: Sequence[Drafter], outputs: Outputs) -> Counts:
    """What the rounds show, as far as an arm's output equals the majority's."""
    length_R = np.array([len(tokens) - 1 for tokens in outputs.values()])
    least_RLD = np.zeros((len(outputs), length_R.max() + 1, len(drafters)), dtype=np.int64)
    most_RLD = np.full_like(least_RLD, [drafter.most for drafter in drafters])
    odds = []
    for d, drafter in enumerate(drafters):
        for k, arm in sorted(drafter.arms.items()):
            for r, (key, tokens) in enumerate(outputs.items()):
                for one in arm.informative_rounds(key, tokens):
                    at = r, len(tokens) - one.before, d
                    is_all = one.accepted == one.depth == k  # more might have been
                    least_RLD[at] = one.accepted
                    most_RLD[at] = max(most_RLD[at], k) if is_all else one.accepted
        seen = [one.accepted for rounds in drafter.arms[drafter.most].rounds.values() for one in rounds]
        odds.append(np.maximum(np.bincount(seen, minlength=drafter.most + 1), 1e-9))  # none is impossible
    return Counts(least_RLD=least_RLD, most_RLD=most_RLD, length_R=length_R, odds=tuple(odds))
