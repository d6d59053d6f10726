"""Timed gates: paired comparisons with intervals, Holm over all gates, each with its own minimum effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.figures import OF_PROMPTS, Side, pair
from specbench.harness.judge.gate_result import Checked, GateResult
from specbench.harness.judge.limits import Share, percent
from specbench.harness.judge.machine_noise import NoiseFloors
from specbench.harness.metrics.figures import COMPARED, Figure
from specbench.harness.stats import verdict as v
from specbench.harness.stats.power import ALPHA

TIMED_GATES = {figure.key: figure for figure in COMPARED}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedLimit:
    """`min_effect`: the smallest change that matters. `direction`: which way is better; the figure's own if not given.
    `alpha`: chance of a false regression over all timed gates together."""

    min_effect: Share = Share(v.MIN_EFFECT)
    alpha: Share = Share(ALPHA)
    direction: Literal["lower", "higher"] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.min_effect < 1 or not 0 < self.alpha < 1:
            raise ValueError("min_effect and alpha: allowed: above 0 and below 1")

    def result(self, figure: Figure, arm: str, status: str, reason: str) -> GateResult:
        """A result without a comparison."""
        worse = "slower" if figure.unit == "ms" else "less"
        limit = f"not {worse} by {percent(self.min_effect)} or more (alpha {self.alpha:g})"
        return GateResult(
            gate=figure.key, kind=g.TIMED, arm=arm, unit=figure.unit, limit=limit, status=status, reason=reason
        )


def timed_results(limits: Sequence[tuple[str, TimedLimit]], checked: Checked) -> Iterator[GateResult]:
    """One result per arm and timed gate; `limits` are pairs of figure key and limit."""
    floors = NoiseFloors.of([run for run in (checked.run, checked.baseline) if run is not None])
    arms = [arm for arm in checked.arms if not checked.is_reference(arm)]
    checks = [(TIMED_GATES[name], limit, arm) for name, limit in limits for arm in arms]
    refusal = g.SKIPPED, "no such arm in the baseline"
    if checked.mismatches:
        refusal = g.NOT_COMPARABLE, "differs in " + "; ".join(m.describe() for m in checked.mismatches)
    elif checked.baseline is None:
        refusal = g.SKIPPED, "no baseline to compare with"
    tested = {}
    for n, (figure, limit, arm) in enumerate(checks):
        base = checked.base(arm)
        if base is not None and not checked.mismatches:
            pairs = pair(figure, base, Side(run=checked.run, arm=arm), floors)
            metric = replace(pairs.metric, gated=True, better=limit.direction or figure.better)
            if checked.is_inner and checked.run.record.is_imported and figure not in OF_PROMPTS:
                pairs = replace(pairs, no_verdict="imported arms were not measured in turns")
            tested[n] = replace(pairs, metric=metric, min_effect=limit.min_effect, alpha=limit.alpha)
    compared = dict(zip(tested, v.compare(list(tested.values())), strict=True))
    for n, (figure, limit, arm) in enumerate(checks):
        result = limit.result(figure, arm, *refusal)
        yield _judged(result, tested[n], compared[n]) if n in tested else result


def _judged(result: GateResult, pairs: v.Pairs, comparison: v.Comparison) -> GateResult:
    kind, status = pairs.metric.pairs, g.PASSED
    reason = [f"{pairs.num_dropped} pairs left out because their values are not positive"] if pairs.num_dropped else []
    if comparison.verdict in (v.NO_DATA, v.EXPLORATORY):
        status = g.NO_DATA
        if comparison.num_pairs and pairs.no_verdict:
            reason.append(pairs.no_verdict)
        else:
            reason.append(comparison.why_too_few)
    elif comparison.verdict == v.REGRESSED:
        status = g.FAILED
    elif comparison.verdict == v.INCONCLUSIVE:
        status = g.INCONCLUSIVE
        # No number of pairs would suffice; where two runs are compared, interleaved blocks would.
        noisy = "too noisy from run to run: compare in interleaved blocks" if pairs.shared is not None else "too noisy"
        reason.append(f"needs about {comparison.more_pairs} more {kind}" if comparison.more_pairs else noisy)
    return replace(
        result,
        status=status,
        value=comparison.b,
        reference=comparison.a,
        reason="; ".join(reason),
        comparison=comparison,
        note=pairs.note,
    )
