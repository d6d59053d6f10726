"""What a gate checks, its result for one arm, and the exit code of all gates together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specbench.harness.exit_codes import ExitCode
from specbench.harness.judge.figures import Side
from specbench.harness.judge.keys import Mismatch
from specbench.harness.judge.stored import StoredRun
from specbench.harness.stats.verdict import Comparison

PASSED, FAILED, INCONCLUSIVE = "passed", "FAILED", "inconclusive"
NO_DATA, NOT_COMPARABLE, SKIPPED = "no data", "not comparable", "not applicable"

ERROR, WARNING, SILENT = "error", "warning", "nothing"

VALIDITY, STRUCTURAL, CORRECTNESS, TIMED = "validity", "structural", "correctness", "timed"


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """One check. `subject`: which part of the arm, if a gate checks several. value, reference: the figure of the run
    and of its baseline. limit: the rule in words. comparison: for timed gates. reason: the reason for the status. note:
    a remark about all figures of its kind."""

    gate: str
    kind: str
    arm: str
    status: str
    subject: str = ""
    value: float | None = None
    reference: float | None = None
    unit: str = ""
    limit: str = ""
    reason: str = ""
    comparison: Comparison | None = None
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.gate} ({self.subject})" if self.subject else self.gate


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What gates check: the run, its baseline (None: only absolute limits can be checked), and the arms with the
    baseline's arm of each, None for a new one. mismatches: why figures must not be compared; empty if that is
    allowed."""

    run: StoredRun
    baseline: StoredRun | None
    arms: Mapping[str, str | None]
    mismatches: tuple[Mismatch, ...]

    @property
    def is_inner(self) -> bool:
        """Whether the baseline is an arm of the run itself."""
        return self.baseline is self.run

    def base(self, arm: str) -> Side | None:
        """The arm that `arm` is compared with; None for the baseline itself, which would always pass."""
        base = self.arms[arm]
        if self.baseline is None or base is None or self.is_reference(arm):
            return None
        return Side(run=self.baseline, arm=base)

    def is_reference(self, arm: str) -> bool:
        """Whether other arms of the run are compared with `arm`."""
        return self.is_inner and self.arms[arm] == arm

    def other_inputs(self) -> str:
        """The prompts, load and sampling that differ, in which case outputs and acceptance differ too; empty if none
        do."""
        found = [m.describe() for m in self.mismatches if m.group != "hardware"]
        return f"differs in {'; '.join(found)}" if found else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """A policy's gate on counts, not on times; its fields are the keys of its table."""

    name: ClassVar[str]
    kind: ClassVar[str]

    def limit(self) -> str:
        """The rule in words."""
        raise NotImplementedError

    def results(self, checked: Checked) -> Iterator[GateResult]:
        """One or more results for each arm."""
        raise NotImplementedError

    def result(
        self,
        arm: str,
        status: str,
        reason: str = "",
        *,
        subject: str = "",
        value: float | None = None,
        reference: float | None = None,
    ) -> GateResult:
        return GateResult(
            gate=self.name,
            kind=self.kind,
            arm=arm,
            status=status,
            subject=subject,
            value=value,
            reference=reference,
            limit=self.limit(),
            reason=reason,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GateReport:
    """All results of one run under one policy. mismatches: what differs, refused or allowed. commands: of the run and
    of its baseline. inconclusive, missing: how the policy treats such results."""

    suite: str
    run_id: str
    baseline_id: str
    results: tuple[GateResult, ...]
    mismatches: tuple[Mismatch, ...]
    notes: tuple[str, ...]
    commands: Mapping[str, str]
    exit_code: ExitCode
    inconclusive: str = "warn"
    missing: str = "fail"

    def severity(self, result: GateResult) -> str:
        """What a result means for the caller, under the policy: see `severity`."""
        return severity(result.status, inconclusive=self.inconclusive, missing=self.missing)

    def with_severity(self, *severities: str) -> list[GateResult]:
        return [result for result in self.results if self.severity(result) in severities]

    def with_status(self, *statuses: str) -> list[GateResult]:
        return [result for result in self.results if result.status in statuses]


def severity(status: str, *, inconclusive: str, missing: str) -> str:
    """ERROR: makes the exit code nonzero; WARNING: does not, but a reader should know; SILENT: passed."""
    if status == NO_DATA:
        return ERROR if missing == "fail" else WARNING
    if status == INCONCLUSIVE:
        return {"fail": ERROR, "warn": WARNING, "pass": SILENT}[inconclusive]
    return ERROR if status in (FAILED, NOT_COMPARABLE) else SILENT


def exit_code(results: Sequence[GateResult], *, inconclusive: str, missing: str) -> ExitCode:
    """0 passed; 6 correctness, which takes precedence; 5 not comparable; 4 invalid measurement; 1 regressed; 3
    inconclusive, if the policy says `fail`. The policy's `missing = "warn"` lets gates without data pass."""
    errors = [r for r in results if severity(r.status, inconclusive=inconclusive, missing=missing) == ERROR]
    found, statuses = {(r.kind, r.status) for r in errors}, {r.status for r in errors}
    if (CORRECTNESS, FAILED) in found:
        return ExitCode.WRONG
    if NOT_COMPARABLE in statuses:
        return ExitCode.NOT_COMPARABLE
    if (VALIDITY, FAILED) in found or NO_DATA in statuses:
        return ExitCode.INVALID
    if FAILED in statuses:
        return ExitCode.FAILED
    return ExitCode.INCONCLUSIVE if INCONCLUSIVE in statuses else ExitCode.PASSED
