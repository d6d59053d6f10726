"""The answer of a run in one sentence: which arm is fastest, by how much, and whether its outputs are the same."""

from __future__ import annotations

from collections.abc import Mapping

from specbench.harness.metrics.doubts import CHANGED, IMPOSSIBLE
from specbench.harness.metrics.speedup import baseline_of
from specbench.harness.registry import BASELINE
from specbench.harness.store.arm_record import FORCED, NOT_PLAUSIBLE, driven_otherwise
from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import (
    NOT_JUDGED,
    NOTHING,
    factor,
    is_no_figure,
    median_ms,
    number,
    outputs_equal,
    row_name,
)
from specbench.reports.run.view import RunView


def answer(view: RunView) -> str:
    """About the arm with the best TPOT against the run's baseline; the intervals decide what is claimed."""
    measured = [arm for arm in view.arms if arm.num_repeats]
    if not measured:
        return f"No repeat was completed: {next((arm.error for arm in view.arms if arm.error), _unmeasured(view))}"
    compared = _compared(view)
    if not compared:
        return _alone(view, measured)
    best, *others = compared
    assert best.speedup is not None
    baseline, low, high = best.speedup.baseline, best.speedup.tpot_ratio_low, best.speedup.tpot_ratio_high
    how_much = f"{row_name(best)} is {ratio_text(best)}"
    if any(mark.startswith(IMPOSSIBLE) for mark in best.marks):
        sentence = f"{how_much} as fast as {baseline} in TPOT, which is impossible: measure again on a quiet machine"
    elif low is None or high is None:
        sentence = f"{how_much} as fast as {baseline} in TPOT, without an interval"
    elif is_no_figure(low, high):
        sentence = f"{row_name(best)} may be faster than {baseline} in TPOT or not: {ratio_text(best)}"
    elif low > 1:
        sentence = f"{how_much} as fast as {baseline} in TPOT"
    elif all(_high(arm) < 1 for arm in compared):
        sentence = f"No arm is faster than {baseline} in TPOT: {how_much} as fast"
    else:
        sentence = f"No arm is clearly faster than {baseline} in TPOT: {how_much} as fast"
    close = [row_name(arm) for arm in others if low is not None and _high(arm) > low]
    sentence += f"; {', '.join(close)} may be as fast as {row_name(best)}" if close else ""
    untrue = [word for word in (NOT_PLAUSIBLE, CHANGED) if any(mark.startswith(word) for mark in best.marks)]
    is_forced = any(mark.startswith(FORCED) for mark in best.marks)
    is_judged = not is_forced or best.speedup.same_output_rate == 1
    outputs = outputs_equal(*equal_outputs(best)) if is_judged else NOT_JUDGED
    return f"{'; '.join([sentence, outputs, *untrue])}."


def fastest(view: RunView) -> ArmSummary | None:
    """The arm that the answer is about; None if no arm can be compared with its baseline."""
    return next(iter(_compared(view)), None)


def ratio_text(arm: ArmSummary) -> str:
    """`1.54x [1.41, 1.66]`, against the baseline of the run in TPOT; the baseline itself is 1.00x. There is
    no figure beside an interval that says nothing."""
    if arm.speedup is None:
        return NOTHING
    ratio, low, high = arm.speedup.tpot_ratio, arm.speedup.tpot_ratio_low, arm.speedup.tpot_ratio_high
    return f"inconclusive [{low:.2f}, {high:.2f}]" if is_no_figure(low, high) else factor(ratio, low, high)


def equal_outputs(arm: ArmSummary) -> tuple[int, int]:
    """How many outputs equal the baseline's, of how many pairs; of none if they were not compared."""
    speedup = arm.speedup
    if speedup is None or speedup.same_output_rate is None:
        return 0, 0
    return round(speedup.same_output_rate * speedup.num_pairs), speedup.num_pairs


def _compared(view: RunView) -> list[ArmSummary]:
    """Arms that are clearly faster than their baseline come first, then the fastest first."""
    found = (arm for arm in view.arms if arm.num_repeats and _is_compared(view, arm))
    return sorted(found, key=lambda arm: (_low(arm) > 1, _ratio(arm)), reverse=True)


def _is_compared(view: RunView, arm: ArmSummary) -> bool:
    """False if the arm was not timed at the same place as its baseline."""
    if arm.speedup is None or arm.speedup.tpot_ratio is None:
        return False
    return not driven_otherwise(view.record.arm(arm.label), view.record.arm(arm.speedup.baseline))


def _ratio(arm: ArmSummary) -> float:
    return (arm.speedup.tpot_ratio if arm.speedup else None) or 0.0


def _low(arm: ArmSummary) -> float:
    """Without an interval, the ratio itself."""
    low = arm.speedup.tpot_ratio_low if arm.speedup else None
    return _ratio(arm) if low is None else low


def _high(arm: ArmSummary) -> float:
    return (arm.speedup.tpot_ratio_high if arm.speedup else None) or 0.0


def _unmeasured(view: RunView) -> str:
    lost = "its requests are missing; resume the run, which then measures them again"
    return lost if view.record.status == "complete" else view.status


def _alone(view: RunView, measured: list[ArmSummary]) -> str:
    """The answer if no arm can be compared with its baseline."""
    baselines = _baselines(view)
    failed = [arm for arm in measured if 0 < arm.num_requests == arm.num_failed_requests]
    sentences = [_all_failed(arm, baselines) for arm in failed]
    rest = [arm for arm in measured if arm not in failed]
    if rest and not any(arm.label in baselines.values() for arm in failed):
        sentences.append(_not_compared(view, rest, baselines))
    return " ".join(sentences)


def _baselines(view: RunView) -> dict[str, str]:
    """The label of the baseline of each arm that has one; a baseline has itself."""
    arms = view.record.arms
    found = {arm.label: base.label for arm in arms if (base := baseline_of(arm, arms)) is not None}
    return found | {label: label for label in found.values()}


def _all_failed(arm: ArmSummary, baselines: Mapping[str, str]) -> str:
    sentence = f"{row_name(arm)}: all of its requests failed ({arm.num_requests} of {arm.num_requests})"
    baseline = baselines.get(arm.label)
    if baseline is None:
        return f"{sentence}."
    if baseline == arm.label:
        return f"{sentence}, so no arm can be compared with it."
    return f"{sentence}, so it cannot be compared with {baseline}."


def _not_compared(view: RunView, arms: list[ArmSummary], baselines: Mapping[str, str]) -> str:
    bases = [arm for arm in arms if arm.label in baselines.values() or arm.strategy == BASELINE]
    arm = next(iter(bases), arms[0])
    sentence = f"{row_name(arm)}: {number(arm.median('tps'))} TPS, TPOT {median_ms('tpot_ms.mean')(arm)} ms"
    if bases:
        return f"{sentence}; no other arm can be compared with it."
    if view.record.is_imported:
        if len(arms) == 1:
            return f"{sentence}; there is no other arm to compare it with."
        return f"{len(arms)} arms were measured, but not under the same load, so there is no speed-up."
    sentence = sentence if len(arms) == 1 else f"{len(arms)} arms were measured"
    return f"{sentence}, {BASELINE} was not, so there is no speed-up."
