"""Timed gates: paired comparisons with an interval, Holm over all, each with the smallest change that matters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specbench.harness.measure.paired import holm, paired
from specbench.harness.measure.power import ALPHA
from specbench.harness.measure.verdict import (
    EXPLORATORY,
    LEAST_PAIRS,
    MIN_EFFECT,
    REGRESSED,
    Comparison,
    compare,
    decide,
)
from specbench.harness.measure.verdict import INCONCLUSIVE as UNDECIDED
from specbench.harness.measure.verdict import NO_DATA as NONE

from . import gate_result as g
from .figures import FIGURES, Figure, Pairs, Side, pair
from .gate_result import Checked, GateResult
from .limits import fraction, key, percent, word

TIMED_GATES = {figure.key: figure for figure in FIGURES}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedLimit:
    """`min_effect`: the smallest change that matters. `direction`: which way is better; the figure's own if not given.
    `alpha`: chance of a false regression over all timed gates together."""

    min_effect: float = key(fraction, MIN_EFFECT)
    alpha: float = key(fraction, ALPHA)
    direction: str | None = key(word("lower", "higher"))

    def __post_init__(self) -> None:
        if not 0 < self.min_effect < 1 or not 0 < self.alpha < 1:
            raise ValueError("min_effect and alpha: allowed: above 0 and below 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    figure: Figure
    limit: TimedLimit
    arm: str
    pairs: Pairs | None


def timed_results(limits: Sequence[tuple[str, TimedLimit]], checked: Checked) -> Iterable[GateResult]:
    """One result an arm and timed gate, `limits` by figure key."""
    asked = [
        _ask(TIMED_GATES[name], limit, checked, arm, base) for name, limit in limits for arm, base in _arms(checked)
    ]
    tests = {n: paired(_log_ratios(a.pairs)) for n, a in enumerate(asked) if a.pairs and len(a.pairs.values) >= 2}
    adjusted = dict(zip(tests, holm([float(t.p) for t in tests.values()]), strict=True)) if tests else {}
    for n, one in enumerate(asked):
        if one.pairs is None:
            yield _refused(one, checked)
            continue
        (found,) = compare({one.pairs.metric: one.pairs.values}, one.limit.min_effect, one.limit.alpha)
        if n in tests and len(one.pairs.values) >= LEAST_PAIRS:
            better = one.pairs.metric.better
            verdict = str(decide(tests[n], adjusted[n], better, one.limit.min_effect, one.limit.alpha))
            found = replace(found, verdict=verdict, p_holm=float(adjusted[n]))
            found = found if verdict == UNDECIDED else replace(found, more_pairs=None)
        yield _result(one, found)


def _arms(checked: Checked) -> list[tuple[str, str | None]]:
    """A baseline in the same run is not compared with itself."""
    return [(a, b) for a, b in checked.arms.items() if not (checked.baseline is checked.run and a == b)]


def _ask(figure: Figure, limit: TimedLimit, checked: Checked, arm: str, base: str | None) -> _Asked:
    if checked.baseline is None or base is None or checked.mismatches:
        return _Asked(figure=figure, limit=limit, arm=arm, pairs=None)
    found = pair(figure, Side(run=checked.baseline, arm=base), Side(run=checked.run, arm=arm))
    metric = replace(found.metric, gated=True, better=limit.direction or figure.better)
    return _Asked(figure=figure, limit=limit, arm=arm, pairs=replace(found, metric=metric))


def _log_ratios(pairs: Pairs) -> Any:
    values = np.asarray(pairs.values)
    return np.log(values[:, 1]) - np.log(values[:, 0])


def _common(one: _Asked) -> dict[str, Any]:
    worse = "slower" if one.figure.unit == "ms" else "less"
    limit = f"not {worse} by {percent(one.limit.min_effect)} or more (alpha {one.limit.alpha:g})"
    return {"gate": one.figure.key, "kind": g.TIMED, "arm": one.arm, "unit": one.figure.unit, "limit": limit}


def _refused(one: _Asked, checked: Checked) -> GateResult:
    if checked.mismatches:
        reason = "differs in " + "; ".join(m.describe() for m in checked.mismatches)
        return GateResult(**_common(one), status=g.NOT_COMPARABLE, reason=reason)
    reason = "no baseline to compare with" if checked.baseline is None else "no such arm in the baseline"
    return GateResult(**_common(one), status=g.SKIPPED, reason=reason)


def _result(one: _Asked, found: Comparison) -> GateResult:
    assert one.pairs is not None
    dropped = one.pairs.num_dropped
    reason = [f"{dropped} pairs left out, their values are no positive numbers"] if dropped else []
    if found.verdict in (NONE, EXPLORATORY):
        status = g.NO_DATA
        reason.append(f"{found.num_pairs} {one.pairs.kind}; a verdict takes {LEAST_PAIRS}")
    elif found.verdict == REGRESSED:
        status = g.FAILED
    elif found.verdict == UNDECIDED:
        status = g.INCONCLUSIVE
        reason.append(f"needs about {found.more_pairs} more {one.pairs.kind}" if found.more_pairs else "too noisy")
    else:
        status = g.PASSED
    return GateResult(
        **_common(one),
        status=status,
        value=found.b,
        reference=found.a,
        reason="; ".join(reason),
        comparison=found,
    )
