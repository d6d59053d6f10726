"""What a gate says of one arm, and what all gates together mean for the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench.harness.measure.verdict import Comparison

from .keys import Mismatch
from .stored import StoredRun

PASSED, FAILED, INCONCLUSIVE = "passed", "FAILED", "inconclusive"
NO_DATA, NOT_COMPARABLE, SKIPPED = "no data", "not comparable", "not applicable"

VALIDITY, STRUCTURAL, CORRECTNESS, TIMED = "validity", "structural", "correctness", "timed"

EXIT_PASSED, EXIT_REGRESSED, EXIT_INCONCLUSIVE, EXIT_INVALID, EXIT_NOT_COMPARABLE, EXIT_WRONG = 0, 1, 3, 4, 5, 6


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """One check. `subject`: which part of the arm, where a gate looks at several. value, reference: the figure of the
    run and of its baseline. limit: the rule in words. comparison: of timed gates. reason: why it is what it is."""

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

    @property
    def name(self) -> str:
        return f"{self.gate} ({self.subject})" if self.subject else self.gate


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What gates look at: the run, its baseline (None: only absolute limits can be checked), and the arms in question
    with the baseline's arm of each, None for a new one. mismatches: why figures must not be compared, none where that
    is allowed."""

    run: StoredRun
    baseline: StoredRun | None
    arms: Mapping[str, str | None]
    mismatches: tuple[Mismatch, ...]

    def other_inputs(self) -> str:
        """What prompts, load or sampling differ in, empty for nothing: what is accepted and said then differs too."""
        found = [m.describe() for m in self.mismatches if m.group != "hardware"]
        return f"differs in {'; '.join(found)}" if found else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class GateReport:
    """All results of one run under one policy. mismatches: what differs, refused or allowed. commands: of the run and
    of its baseline."""

    suite: str
    run_id: str
    baseline_id: str
    results: tuple[GateResult, ...]
    mismatches: tuple[Mismatch, ...]
    notes: tuple[str, ...]
    commands: Mapping[str, str]
    exit_code: int

    def with_status(self, *statuses: str) -> list[GateResult]:
        return [result for result in self.results if result.status in statuses]


def exit_code(results: Sequence[GateResult], *, inconclusive: str, missing: str) -> int:
    """0 passed; 6 correctness, before everything; 5 not comparable; 4 invalid measurement; 1 regressed; 3 inconclusive
    where the policy says `fail`. The policy's `missing = "warn"` lets gates without data pass."""
    found = {(r.kind, r.status) for r in results}
    statuses = {r.status for r in results}
    if (CORRECTNESS, FAILED) in found:
        return EXIT_WRONG
    if NOT_COMPARABLE in statuses:
        return EXIT_NOT_COMPARABLE
    if (VALIDITY, FAILED) in found or (NO_DATA in statuses and missing == "fail"):
        return EXIT_INVALID
    if FAILED in statuses:
        return EXIT_REGRESSED
    if INCONCLUSIVE in statuses and inconclusive == "fail":
        return EXIT_INCONCLUSIVE
    return EXIT_PASSED
