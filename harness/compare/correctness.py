"""Gates of validity and correctness: failed requests, identical outputs, certificates, accuracy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from specbench.harness.measure.accuracy import paired
from specbench.harness.measure.metrics import BASELINE
from specbench.harness.measure.power import ALPHA

from . import gate_result as g
from .figures import Side
from .gate_result import Checked, GateResult
from .limits import flag, fraction, key, number, percent
from .outputs import same_outputs
from .stored import StoredRun

_CERTIFICATE, _ACCURACY = "certificate.json", "accuracy.parquet"
_TASK_KEYS = ["task", "version", "filter", "num_fewshot", "metric"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedRequestsGate:
    """At most `max` failed requests, no failed block, and no arm of the baseline missing. Always checked."""

    name: ClassVar[str] = "failed_requests"
    max: float = key(number, 0.0)

    def results(self, checked: Checked) -> Iterator[GateResult]:
        run = checked.run
        for arm in checked.arms:
            failed = sum(block["num_failed_requests"] for block in run.blocks(arm).values())
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
    """At least `min` of the requests give the tokens that the same arm gave in the baseline; without a baseline, those
    that the arm `no-spec` of the same run gave."""

    name: ClassVar[str] = "same_output"
    min: float = key(fraction, 1.0)

    def results(self, checked: Checked) -> Iterator[GateResult]:
        for arm, base in checked.arms.items():
            other = _reference(checked, arm, base)
            found = same_outputs(other, Side(run=checked.run, arm=arm)) if other else None
            common: dict[str, Any] = {"gate": self.name, "kind": g.CORRECTNESS, "arm": arm}
            common["limit"] = f"at least {percent(self.min)}"
            if other is not None and other.run is not checked.run and (reason := checked.other_inputs()):
                yield GateResult(**common, status=g.NOT_COMPARABLE, reason=reason)
                continue
            if found is None:
                status = g.SKIPPED if other is None else g.NO_DATA
                yield GateResult(**common, status=status, reason="no outputs of the same prompts to compare with")
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
            elif checked.run.arm(arm).get("strategy") == BASELINE:
                status, reason = g.SKIPPED, "the reference itself"
            else:
                status, reason = (g.NO_DATA if self.required else g.SKIPPED), "no certificate of this arm"
            yield GateResult(
                gate=self.name, kind=g.CORRECTNESS, arm=arm, status=status, limit="lossless", reason=reason
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyGate:
    """Scores, paired item by item, are no more than `max_drop` below the reference's: the same arm of the baseline, or
    `no-spec` of the same run where the baseline was not evaluated."""

    name: ClassVar[str] = "accuracy"
    max_drop: float = key(fraction, 0.01)
    alpha: float = key(fraction, ALPHA)

    def results(self, checked: Checked) -> Iterator[GateResult]:
        own = _read_accuracy(checked.run.path)
        for arm, base in checked.arms.items():
            rows = own[own["arm"] == arm]
            other = self._reference_rows(checked, arm, base, own)
            if checked.run.arm(arm).get("strategy") == BASELINE and other.empty:
                continue
            if rows.empty or other.empty:
                yield self._result(arm, "", g.NO_DATA, None, "no scores of this arm and of a reference")
                continue
            for names, group in rows.groupby(_TASK_KEYS, sort=False):
                same = other[(other[_TASK_KEYS] == list(names)).all(axis=1)]
                yield self._judge(arm, f"{names[0]}, {names[-1]}", same, group)

    def _reference_rows(self, checked: Checked, arm: str, base: str | None, own: pd.DataFrame) -> pd.DataFrame:
        if checked.baseline is not None and base is not None and checked.baseline is not checked.run:
            rows = _read_accuracy(checked.baseline.path)
            if not rows[rows["arm"] == base].empty:
                return rows[rows["arm"] == base]
        plain = [
            a["label"] for a in checked.run.manifest["arms"] if a.get("strategy") == BASELINE and a["label"] != arm
        ]
        return own[own["arm"].isin(plain[:1])]

    def _judge(self, arm: str, subject: str, other: pd.DataFrame, own: pd.DataFrame) -> GateResult:
        num_rows = len(own)
        own, other = (rows[np.isfinite(rows["value"].astype(float))] for rows in (own, other))
        found = paired(other, own)
        if not found["n"]:
            return self._result(arm, subject, g.NO_DATA, None, "no item with a score on both sides")
        change = found["difference"]
        left_out = f"; {num_rows - len(own)} items without a score left out" if len(own) < num_rows else ""
        if "low" not in found:
            return self._result(arm, subject, g.INCONCLUSIVE, change, f"one item has no interval{left_out}")
        said = f"{change:+.1%} [{found['low']:+.1%}, {found['high']:+.1%}] over {found['n']} items, "
        if found["p"] is None:
            said += f"paired t, scores are no 0 or 1{left_out}"
            is_lower = found["high"] < 0
        else:
            said += f"McNemar p {found['p']:.2g}, can see {found['detectable']:.1%}{left_out}"
            is_lower = found["p"] <= self.alpha
        if change < -self.max_drop and is_lower:
            return self._result(arm, subject, g.FAILED, change, said)
        inside = found["low"] >= -self.max_drop
        return self._result(arm, subject, g.PASSED if inside else g.INCONCLUSIVE, change, said)

    def _result(self, arm: str, subject: str, status: str, value: float | None, reason: str) -> GateResult:
        return GateResult(
            gate=self.name,
            kind=g.CORRECTNESS,
            arm=arm,
            subject=subject,
            status=status,
            value=value,
            limit=f"at most {percent(self.max_drop)} below the reference",
            reason=reason,
        )


def _reference(checked: Checked, arm: str, base: str | None) -> Side | None:
    if checked.baseline is not None and base is not None and checked.baseline is not checked.run:
        return Side(run=checked.baseline, arm=base)
    plain = [label for label in checked.run.arms if checked.run.arm(label).get("strategy") == BASELINE]
    return Side(run=checked.run, arm=plain[0]) if plain and plain[0] != arm else None


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


def _read_accuracy(directory: Path) -> pd.DataFrame:
    path = directory / _ACCURACY
    if not path.is_file():
        return pd.DataFrame(columns=["arm", "item", "value", "output_sha256", *_TASK_KEYS])
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: damaged ({error}); remove it and evaluate again") from error
