"""Gates of validity and correctness: failed requests, identical outputs, certificates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.figures import Side
from specbench.harness.judge.gate_result import Checked, GateResult
from specbench.harness.judge.limits import flag, fraction, key, number, percent
from specbench.harness.judge.outputs import same_outputs
from specbench.harness.judge.stored import StoredRun
from specbench.harness.metrics.figures import FAILED_REQUESTS, SAME_OUTPUT
from specbench.harness.registry import BASELINE

_CERTIFICATE = "certificate.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedRequestsGate:
    """At most `max` failed requests, no failed block, and no arm of the baseline missing. Always checked."""

    name: ClassVar[str] = FAILED_REQUESTS.key
    max: float = key(number, 0.0)

    def results(self, checked: Checked) -> Iterator[GateResult]:
        run = checked.run
        for arm in checked.arms:
            failed = _num_failed(run, arm)
            errors = [error for (label, _), error in run.failed.items() if label == arm]
            reasons = [f"{failed} requests failed"] if failed > self.max else []
            reasons += [f"{len(errors)} repeats failed: {errors[0]}"] if errors else []
            yield self._result(arm, reasons, float(failed))
        for arm in dict.fromkeys(label for label, _ in run.failed if label not in run.arms):
            yield self._result(arm, [f"the arm failed: {_first(run, arm)}"], None)
        for arm in self._vanished(checked):
            yield self._result(arm, ["the baseline has this arm, the run has not"], None)

    def _vanished(self, checked: Checked) -> list[str]:
        if checked.baseline is None or checked.baseline is checked.run:
            return []
        told = {*checked.arms.values(), *(label for label, _ in checked.run.failed)}
        return [arm for arm in checked.baseline.arms if arm not in told and arm not in checked.run.arms]

    def _result(self, arm: str, reasons: list[str], value: float | None) -> GateResult:
        return GateResult(
            gate=self.name,
            kind=g.VALIDITY,
            arm=arm,
            status=g.FAILED if reasons else g.PASSED,
            value=value,
            limit=f"at most {self.max:g}",
            reason="; ".join(reasons),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SameOutputGate:
    """At least `min` of the requests give the tokens that the same arm gave in the baseline (B of an A/B run: that A
    gave); without a baseline, those that the arm `no-spec` of the same run gave."""

    name: ClassVar[str] = SAME_OUTPUT.key
    min: float = key(fraction, 1.0)

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm, base in checked.arms.items():
            other = _reference(checked, arm, base)
            found = same_outputs(other, Side(run=checked.run, arm=arm)) if other else None
            common: dict[str, Any] = {"gate": self.name, "kind": g.CORRECTNESS, "arm": arm}
            common["limit"] = f"at least {percent(self.min)}"
            if other is not None and (reason := checked.other_inputs()):
                yield GateResult(**common, status=g.NOT_COMPARABLE, reason=reason)
                continue
            if found is None and _is_reference(checked, arm, base):
                yield GateResult(**common, status=g.SKIPPED, reason="the reference itself")
                continue
            if found is None:
                reason = "neither a baseline nor an arm no-spec" if other is None else "no outputs of the same prompts"
                yield GateResult(**common, status=g.NO_DATA, reason=f"{reason} to compare with")
                continue
            share = found[0] / found[1]
            failed = share < self.min
            reason = f"{found[1] - found[0]} of {found[1]} outputs differ" if failed else ""
            yield GateResult(**common, status=g.FAILED if failed else g.PASSED, value=share, reason=reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificateGate:
    """Every arm has a losslessness certificate (`specbench certify --run`) and passed. required = false: only where
    there is one."""

    name: ClassVar[str] = "certificate"
    required: bool = key(flag, True)

    def results(self, checked: Checked) -> Iterator[GateResult]:
        certificate = _read_certificate(checked.run.path)
        for arm in checked.arms:
            rows = [r for r in (certificate or {}).get("certificates", []) if r["arm"] == arm]
            problems = [problem for r in rows if not r["ok"] for problem in r["problems"] or ["failed"]]
            if problems:
                status, reason = g.FAILED, "; ".join(problems)
            elif rows:
                status, reason = g.PASSED, ""
            elif checked.run.record.arm(arm).strategy == BASELINE:
                status, reason = g.SKIPPED, "the reference itself"
            else:
                status, reason = (g.NO_DATA if self.required else g.SKIPPED), "no certificate of this arm"
            yield GateResult(
                gate=self.name, kind=g.CORRECTNESS, arm=arm, status=status, limit="lossless", reason=reason
            )


def _reference(checked: Checked, arm: str, base: str | None) -> Side | None:
    if checked.baseline is not None and base is not None and checked.baseline is not checked.run:
        return Side(run=checked.baseline, arm=base)
    if checked.run.experiment is not None and base is not None:
        return Side(run=checked.run, arm=base) if base != arm else None
    plain = [label for label in checked.run.arms if checked.run.record.arm(label).strategy == BASELINE]
    return Side(run=checked.run, arm=plain[0]) if plain and plain[0] != arm else None


def _is_reference(checked: Checked, arm: str, base: str | None) -> bool:
    """What others are compared with has nothing to be compared with itself."""
    own = base == arm and checked.baseline is checked.run
    return own or checked.run.record.arm(arm).strategy == BASELINE


def _num_failed(run: StoredRun, arm: str) -> int:
    """Failed requests of all measured blocks: those of a block that is left out for them failed all the same."""
    measured = {**run.figures, **run.rejected}
    return sum(int(block[FAILED_REQUESTS.block] or 0) for (label, _), block in measured.items() if label == arm)


def _first(run: StoredRun, arm: str) -> str:
    return next(error for (label, _), error in run.failed.items() if label == arm)


def _read_certificate(directory: Path) -> dict[str, Any] | None:
    """None where there is none or it is unfinished; ValueError for a damaged one."""
    path = directory / _CERTIFICATE
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return data if data["status"] == "complete" or any(not r["ok"] for r in data["certificates"]) else None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged ({error!r}); remove it and certify again") from error
