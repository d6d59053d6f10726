"""Timed gates: paired comparisons with an interval, Holm over all, each with the smallest change that matters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.figures import Pairs, Side, pair
from specbench.harness.judge.gate_result import Checked, GateResult
from specbench.harness.judge.limits import fraction, key, percent, word
from specbench.harness.judge.machine_noise import NoiseFloors
from specbench.harness.metrics.figures import COMPARED, Figure
from specbench.harness.stats.paired import Paired, holm
from specbench.harness.stats.power import ALPHA
from specbench.harness.stats.verdict import (
    EXPLORATORY,
    LEAST_PAIRS,
    MIN_EFFECT,
    REGRESSED,
    Comparison,
    comparison,
    ratio_test,
    untested,
)
from specbench.harness.stats.verdict import INCONCLUSIVE as UNDECIDED
from specbench.harness.stats.verdict import NO_DATA as NONE

TIMED_GATES = {figure.key: figure for figure in COMPARED}


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
    floors = NoiseFloors.of([run for run in (checked.run, checked.baseline) if run is not None])
    asked = [
        _ask(TIMED_GATES[name], limit, checked, arm, base, floors)
        for name, limit in limits
        for arm, base in _arms(checked)
    ]
    tests = {n: ratio_test(p.values, p.shared) for n, p in enumerate(a.pairs for a in asked) if p and _is_testable(p)}
    adjusted = dict(zip(tests, holm([float(t.p) for t in tests.values()]), strict=True)) if tests else {}
    for n, one in enumerate(asked):
        if one.pairs is None:
            yield _refused(one, checked)
        elif n in tests:
            yield _result(one, _compared(one, tests[n], float(adjusted[n])))
        else:
            yield _result(one, untested(one.pairs.metric, one.pairs.values))


def _is_testable(pairs: Pairs) -> bool:
    return not pairs.no_verdict and len(pairs.values) >= 2


def _compared(one: _Asked, test: Paired, p_holm: float) -> Comparison:
    """The comparison of one figure, with the verdict that all timed gates together leave it."""
    assert one.pairs is not None
    pairs, limit = one.pairs, one.limit
    is_shared = pairs.shared is not None
    return comparison(pairs.metric, pairs.values, test, p_holm, limit.min_effect, limit.alpha, is_shared=is_shared)


def _arms(checked: Checked) -> list[tuple[str, str | None]]:
    """A baseline in the same run is not compared with itself."""
    return [(a, b) for a, b in checked.arms.items() if not (checked.baseline is checked.run and a == b)]


def _ask(
    figure: Figure, limit: TimedLimit, checked: Checked, arm: str, base: str | None, floors: NoiseFloors
) -> _Asked:
    if checked.baseline is None or base is None or checked.mismatches:
        return _Asked(figure=figure, limit=limit, arm=arm, pairs=None)
    found = pair(figure, Side(run=checked.baseline, arm=base), Side(run=checked.run, arm=arm), floors)
    metric = replace(found.metric, gated=True, better=limit.direction or figure.better)
    return _Asked(figure=figure, limit=limit, arm=arm, pairs=replace(found, metric=metric))


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
        too_few = f"{found.num_pairs} {one.pairs.kind}; a verdict takes {LEAST_PAIRS}"
        reason.append(too_few if not found.num_pairs else one.pairs.no_verdict or too_few)
    elif found.verdict == REGRESSED:
        status = g.FAILED
    elif found.verdict == UNDECIDED:
        status = g.INCONCLUSIVE
        reason.append(
            f"needs about {found.more_pairs} more {one.pairs.kind}" if found.more_pairs else _noisy(one.pairs)
        )
    else:
        status = g.PASSED
    return GateResult(
        **_common(one),
        status=status,
        value=found.b,
        reference=found.a,
        reason="; ".join(reason),
        comparison=found,
        note=one.pairs.note,
    )


def _noisy(pairs: Pairs) -> str:
    """No number of pairs would do; where two runs are compared, blocks would."""
    return "too noisy from run to run: compare with specbench ab" if pairs.shared is not None else "too noisy"
