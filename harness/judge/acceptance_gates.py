"""Gates of acceptance, counted in the step log: the length, and the rate at each position, which a mean would hide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.figures import Side
from specbench.harness.judge.gate_result import Checked, Gate, GateResult
from specbench.harness.judge.limits import Number, Share, percent
from specbench.harness.metrics.acceptance import acceptance_metrics, drafts_by_position
from specbench.harness.metrics.counted_acceptance import with_counted
from specbench.harness.metrics.figures import ACCEPTANCE_BY_POSITION, ACCEPTANCE_LENGTH
from specbench.harness.store.results import Acceptance


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceGate(Gate):
    """Acceptance length: at least `min`, and at least `min_of_reference` of `reference` (a number, or one by arm) or
    else of the baseline's."""

    name: ClassVar[str] = ACCEPTANCE_LENGTH.key
    kind: ClassVar[str] = g.STRUCTURAL
    min: Number | None = None
    reference: Number | Annotated[dict[str, Number], Meta(min_length=1)] | None = None
    min_of_reference: Share = Share(0.95)

    def limit(self) -> str:
        own = [f"at least {self.min:g}"] if self.min is not None else []
        return " and ".join([*own, f"at least {percent(self.min_of_reference)} of the reference"])

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm in checked.arms:
            value, base = _acceptance(Side(run=checked.run, arm=arm)).acceptance_length, checked.base(arm)
            of_base = _acceptance(base).acceptance_length if base else None
            policy = self.reference.get(arm) if isinstance(self.reference, dict) else self.reference
            reference = of_base if policy is None else policy
            status, reason = self._status(value, reference, checked, arm)
            if policy is None and of_base is not None and (other := checked.other_inputs()):
                status, reason = g.NOT_COMPARABLE, other
            yield self.result(arm, status, reason, value=value, reference=reference)

    def _status(self, value: float | None, reference: float | None, checked: Checked, arm: str) -> tuple[str, str]:
        if value is None:
            return _without_drafts(checked, arm, reference is not None)
        failed = [f"{value:.3f} is less than {self.min:g}"] if self.min is not None and value < self.min else []
        if reference is not None and value < self.min_of_reference * reference:
            failed.append(f"{value:.3f} is {value / reference:.1%} of {reference:.3f}")
        if failed:
            return g.FAILED, "; ".join(failed)
        if self.min is not None or reference is not None:
            return g.PASSED, ""
        if isinstance(self.reference, dict):
            return g.NO_DATA, f"the policy's reference has no figure for this arm, only for {', '.join(self.reference)}"
        return g.SKIPPED, "no reference to compare with"


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionsGate(Gate):
    """Of the drafts at each position whose earlier drafts were accepted, the share that was accepted: at least `min`
    (one floor per position, from the first), and at least `min_of_reference` of the baseline's, where `min_drafts`
    reached the position."""

    name: ClassVar[str] = ACCEPTANCE_BY_POSITION.key
    kind: ClassVar[str] = g.STRUCTURAL
    min: Annotated[tuple[Share, ...], Meta(min_length=1)] | None = None
    min_of_reference: Share = Share(0.95)
    min_drafts: Number = 30

    def limit(self) -> str:
        own = [f"at least {', '.join(map(percent, self.min))} from the first"] if self.min else []
        return " and ".join([*own, f"at least {percent(self.min_of_reference)} of the baseline's"])

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm in checked.arms:
            side, base = Side(run=checked.run, arm=arm), checked.base(arm)
            found, of_base = _acceptance(side), _acceptance(base) if base else None
            if of_base and of_base.conditional and (other := checked.other_inputs()):
                yield self.result(arm, g.NOT_COMPARABLE, other)
            elif not found.conditional and found.acceptance_length is not None:
                yield self.result(arm, g.NO_DATA, "the file's sums do not show how many drafts reached a position")
            elif not found.conditional:
                yield self.result(arm, *_without_drafts(checked, arm, bool(of_base and of_base.conditional)))
            else:
                known = [one.conditional for one in (found, of_base) if one]
                reached = [_reached(side, found), *([_reached(base, of_base)] if base and of_base else [])]
                for place in range(max(len(self.min or ()), *map(len, known))):
                    num_drafts = min(counts[place] if place < len(counts) else 0 for counts in reached)
                    yield self._position(arm, place, found, of_base, num_drafts)

    def _position(
        self, arm: str, place: int, found: Acceptance, of_base: Acceptance | None, num_drafts: int
    ) -> GateResult:
        value, reference = _rate(found, place), _rate(of_base, place)
        floor = self.min[place] if self.min and place < len(self.min) else None
        if value is None or num_drafts < self.min_drafts:
            reference = None
        failed = [] if place < len(found.conditional) else ["no drafts at this position"]
        if value is not None and floor is not None and value < floor:
            failed.append(f"{percent(value)} is less than {percent(floor)}")
        if value is not None and reference is not None and value < self.min_of_reference * reference:
            failed.append(f"{percent(value)} instead of {percent(reference)}")
        status, reason = (g.FAILED, "; ".join(failed)) if failed else (g.PASSED, "")
        if not failed and value is None and floor is not None:
            status, reason = g.NO_DATA, "no draft before it was accepted"
        elif not failed and floor is None and reference is None:  # an earlier position's fault, where few get so far
            reason = f"only {num_drafts} drafts reached this position" if of_base else "no baseline to compare with"
            status = g.SKIPPED
        return self.result(arm, status, reason, subject=f"position {place + 1}", value=value, reference=reference)


def _without_drafts(checked: Checked, arm: str, reference_has: bool) -> tuple[str, str]:
    """Status and reason of an arm of which no verification is known."""
    described = checked.run.record.arm(arm)
    if not (reference_has or described.config.num_drafts):
        return g.SKIPPED, "no drafts"
    if described.imported is not None:
        return g.NO_DATA, "the imported file does not show what was accepted"
    return g.FAILED, "no draft was verified"


def _rate(found: Acceptance | None, place: int) -> float | None:
    rates = found.conditional if found else ()
    return rates[place] if place < len(rates) else None


def _acceptance(side: Side) -> Acceptance:
    """The figures of all repeats pooled, from an imported file's counters if it does not list rounds."""
    requests, steps, counters = (side.run.rows(table, side.arm) for table in ("requests", "steps", "counters"))
    return with_counted(acceptance_metrics(requests, steps), counters.groupby("name")["value"].sum().to_dict())


def _reached(side: Side, found: Acceptance) -> Sequence[int]:
    """How many drafts reached each position. A position that rounds with fewer drafts do not have is not reached by
    them; counters by position are only used where all rounds had the same number."""
    by_rounds = drafts_by_position(side.run.rows("steps", side.arm))
    return by_rounds or [sum(found.accepted_histogram[place:]) for place in range(len(found.conditional))]
