"""Gates of validity and correctness: failed requests, identical outputs, certificates, blocks of an A/B run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.certificate_marks import certificate_rows
from specbench.harness.judge.comparison import FALSE_CHANGE
from specbench.harness.judge.experiment import MAX_REJECTED
from specbench.harness.judge.figures import Side, same_outputs
from specbench.harness.judge.gate_result import Checked, Gate, GateResult
from specbench.harness.judge.limits import Number, Share, percent
from specbench.harness.metrics.figures import FAILED_REQUESTS, SAME_OUTPUT
from specbench.harness.registry import BASELINE
from specbench.harness.stats.verdict import IMPROVED, REGRESSED


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedRequestsGate(Gate):
    """At most `max` failed requests, no failed block, all arms of the run measured, and no arm of the baseline missing.
    Always checked."""

    name: ClassVar[str] = FAILED_REQUESTS.key
    kind: ClassVar[str] = g.VALIDITY
    max: Number = 0.0

    def limit(self) -> str:
        return f"at most {self.max:g}"

    def results(self, checked: Checked) -> Iterator[GateResult]:
        run = checked.run
        errors: dict[str, list[str]] = {}
        for (arm, _), error in run.failed.items():
            errors.setdefault(arm, []).append(error)
        measured = {**run.figures, **run.rejected}  # failures of a rejected block are failures all the same
        for arm in checked.arms:
            counts = [figures[FAILED_REQUESTS.block] for (label, _), figures in measured.items() if label == arm]
            num_failed = sum(int(count or 0) for count in counts)
            reasons = [f"{num_failed} requests failed"] if num_failed > self.max else []
            reasons += [f"{len(errors[arm])} repeats failed: {errors[arm][0]}"] if arm in errors else []
            status = g.FAILED if reasons else g.PASSED
            yield self.result(arm, status, "; ".join(reasons), value=float(num_failed))
        for arm in (arm for arm in errors if arm not in run.arms):
            yield self.result(arm, g.FAILED, f"the arm failed: {errors[arm][0]}")
        # An A/B run has blocks instead, see BlocksGate.
        for arm in (arm.label for arm in run.record.arms if run.experiment is None):
            if arm not in (*errors, *run.arms):
                yield self.result(arm, g.NO_DATA, f"the arm was not measured (status {run.record.status})")
        known = {*checked.arms.values(), *errors, *run.arms}
        for arm in checked.baseline.arms if checked.baseline is not None and not checked.is_inner else ():
            if arm not in known:
                yield self.result(arm, g.FAILED, "the baseline has this arm, but the run does not")


@dataclass(frozen=True, kw_only=True, slots=True)
class SameOutputGate(Gate):
    """At least `min` of the requests give the same tokens as the same arm in the baseline (for B of an A/B run: as A);
    without a baseline, as the arm `no-spec` of the same run."""

    name: ClassVar[str] = SAME_OUTPUT.key
    kind: ClassVar[str] = g.CORRECTNESS
    min: Share = Share(1.0)

    def limit(self) -> str:
        return f"at least {percent(self.min)}"

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm in checked.arms:
            other = _reference(checked, arm)
            counts = same_outputs(other, Side(run=checked.run, arm=arm)) if other else None
            if other is not None and (reason := checked.other_inputs()):
                yield self.result(arm, g.NOT_COMPARABLE, reason)
            elif counts is not None:
                num_same, num_pairs = counts
                failed = num_same / num_pairs < self.min
                reason = f"{num_pairs - num_same} of {num_pairs} outputs differ" if failed else ""
                yield self.result(arm, g.FAILED if failed else g.PASSED, reason, value=num_same / num_pairs)
            elif _is_baseline(checked, arm) or checked.is_reference(arm):
                yield self.result(arm, g.SKIPPED, "the reference itself")
            else:
                reason = "neither a baseline nor an arm no-spec" if other is None else "no outputs of the same prompts"
                yield self.result(arm, g.NO_DATA, f"{reason} to compare with")


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificateGate(Gate):
    """Every arm has a losslessness certificate (`specbench certify --run`) and passed. required = false: only checked
    if there is one."""

    name: ClassVar[str] = "certificate"
    kind: ClassVar[str] = g.CORRECTNESS
    required: bool = True

    def limit(self) -> str:
        return "lossless"

    def results(self, checked: Checked) -> Iterator[GateResult]:
        certificates = certificate_rows(checked.run.path)
        for arm in checked.arms:
            rows = [row for row in certificates if row["arm"] == arm]
            problems = [problem for row in rows if not row["ok"] for problem in row["problems"] or ["failed"]]
            if rows:
                yield self.result(arm, g.FAILED if problems else g.PASSED, "; ".join(problems))
            elif _is_baseline(checked, arm):
                yield self.result(arm, g.SKIPPED, "the reference itself")
            else:
                yield self.result(arm, g.NO_DATA if self.required else g.SKIPPED, "no certificate of this arm")


@dataclass(frozen=True, kw_only=True, slots=True)
class BlocksGate(Gate):
    """Whether an A/B run is a valid measurement: always checked, for the run and for its baseline if that is another
    run. `timed`: results of the timed gates."""

    name: ClassVar[str] = "ab_blocks"
    kind: ClassVar[str] = g.VALIDITY
    timed: Sequence[GateResult]

    def limit(self) -> str:
        return f"all measured, 6 or more count, at most {percent(MAX_REJECTED)} rejected, no change between equal sides"

    def results(self, checked: Checked) -> Iterator[GateResult]:
        verdicts = {result.comparison.verdict for result in self.timed if result.comparison is not None}
        for subject, run in (("", checked.run), ("baseline", checked.baseline)):
            if run is None or run.experiment is None or (subject and checked.is_inner):
                continue
            reason = run.experiment.no_verdict()
            if not reason and run.experiment.is_aa and checked.is_inner and verdicts & {IMPROVED, REGRESSED}:
                reason = FALSE_CHANGE
            rejected = float(run.experiment.num_rejected)
            yield self.result("A, B", g.FAILED if reason else g.PASSED, reason, subject=subject, value=rejected)


def _reference(checked: Checked, arm: str) -> Side | None:
    base = checked.base(arm)
    if base is not None and not checked.is_inner:
        return base
    if checked.run.experiment is not None and (base is not None or checked.is_reference(arm)):
        return base
    plain = [label for label in checked.run.arms if _is_baseline(checked, label)]
    return Side(run=checked.run, arm=plain[0]) if plain and plain[0] != arm else None


def _is_baseline(checked: Checked, arm: str) -> bool:
    return checked.run.record.arm(arm).strategy == BASELINE
