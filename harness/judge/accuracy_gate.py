"""The gate of accuracy: scores paired item by item, in the direction that lm-eval records for the metric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.gate_result import Checked, GateResult
from specbench.harness.judge.limits import fraction, key, percent
from specbench.harness.metrics.accuracy import ACCURACY_SCHEMA, DIRECTION, paired, with_direction
from specbench.harness.metrics.figures import ACCURACY
from specbench.harness.registry import BASELINE
from specbench.harness.stats.paired import holm
from specbench.harness.stats.power import ALPHA
from specbench.harness.store.results import ItemPairs

_FILE = "accuracy.parquet"
_TASK_KEYS = ["task", "version", "filter", "num_fewshot", "metric"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """One test: an arm on one task, filter and metric. found: as `paired` gives it, None without scores. better:
    1 where more is better, -1 where less is, 0 where nobody knows."""

    arm: str
    subject: str = ""
    found: ItemPairs | None
    better: int = 0
    num_left_out: int = 0

    @property
    def p_test(self) -> float | None:
        """None where it has no test."""
        return self.found.p_test if self.better and self.found is not None else None


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyGate:
    """Scores, paired item by item, are no more than `max_drop` worse than the reference's: the same arm of the baseline
    (the policy's baseline arm, A of an A/B run), or `no-spec` of the same run where that was not evaluated. What is
    worse is what lm-eval says of the metric. `alpha`: chance of a false loss over all arms, tasks, filters and metrics
    together (Holm)."""

    name: ClassVar[str] = ACCURACY.key
    max_drop: float = key(fraction, 0.01)
    alpha: float = key(fraction, ALPHA)

    def results(self, checked: Checked) -> Iterator[GateResult]:
        asked = list(_asked(checked))
        tests = {n: one.p_test for n, one in enumerate(asked) if one.p_test is not None}
        adjusted = dict(zip(tests, holm(list(tests.values())), strict=True)) if tests else {}
        for n, one in enumerate(asked):
            yield self._judged(one, adjusted.get(n))

    def _judged(self, one: _Asked, p_holm: float | None) -> GateResult:
        found = one.found
        if found is None:
            return self._result(one, g.NO_DATA, None, "no scores of this arm and of a reference")
        if not found.n:
            return self._result(one, g.NO_DATA, None, "no item with a score on both sides")
        change = found.difference
        if not one.better:
            return self._result(
                one, g.NO_DATA, change, "no verdict: not recorded whether more or less is better; evaluate again"
            )
        left_out = f"; {one.num_left_out} items without a score left out" if one.num_left_out else ""
        if p_holm is None:
            return self._result(one, g.INCONCLUSIVE, change, f"one item has no interval{left_out}")
        assert change is not None and found.low is not None and found.high is not None
        ends = [one.better * found.low, one.better * found.high]
        status = g.INCONCLUSIVE
        if one.better * change < -self.max_drop and p_holm <= self.alpha:
            status = g.FAILED
        elif min(ends) >= -self.max_drop:
            status = g.PASSED
        return self._result(one, status, change, _said(found, p_holm) + left_out)

    def _result(self, one: _Asked, status: str, value: float | None, reason: str) -> GateResult:
        worse = {1: "lower", -1: "higher", 0: "worse"}[one.better]
        return GateResult(
            gate=self.name,
            kind=g.CORRECTNESS,
            arm=one.arm,
            subject=one.subject,
            status=status,
            value=value,
            limit=f"at most {percent(self.max_drop)} {worse}",
            reason=reason,
        )


def _said(found: ItemPairs, p_holm: float) -> str:
    text = f"{found.difference:+.1%} [{found.low:+.1%}, {found.high:+.1%}] over {found.n} items, "
    if found.p is None:
        return text + f"paired t, scores are no 0 or 1, p (Holm) {p_holm:.2g}"
    return text + f"McNemar p (Holm) {p_holm:.2g}, can see {found.detectable:.1%}"


def _asked(checked: Checked) -> Iterator[_Asked]:
    own = _read_accuracy(checked.run.path)
    for arm, base in checked.arms.items():
        rows, other = own[own["arm"] == arm], _reference_rows(checked, arm, base, own)
        if checked.run.record.arm(arm).strategy == BASELINE and other.empty:
            continue
        if rows.empty or other.empty:
            yield _Asked(arm=arm, found=None)
            continue
        for names, group in rows.groupby(_TASK_KEYS, sort=False):
            same = other[(other[_TASK_KEYS] == list(names)).all(axis=1)]
            scored = [side[np.isfinite(side["value"].astype(float))] for side in (same, group)]
            yield _Asked(
                arm=arm,
                subject=", ".join(str(names[n]) for n in (0, 2, -1)),
                found=paired(*scored),
                better=_direction(same, group),
                num_left_out=len(group) - len(scored[1]),
            )


def _direction(*sides: pd.DataFrame) -> int:
    """0 where a side does not say, or where they contradict each other."""
    said = {value for side in sides for value in side[DIRECTION].astype(object).where(side[DIRECTION].notna(), None)}
    return {frozenset({True}): 1, frozenset({False}): -1}.get(frozenset(said), 0)


def _reference_rows(checked: Checked, arm: str, base: str | None, own: pd.DataFrame) -> pd.DataFrame:
    if checked.baseline is not None and base is not None and (checked.baseline is not checked.run or base != arm):
        rows = _read_accuracy(checked.baseline.path) if checked.baseline is not checked.run else own
        if not rows[rows["arm"] == base].empty:
            return rows[rows["arm"] == base]
    plain = [a.label for a in checked.run.record.arms if a.strategy == BASELINE and a.label != arm]
    return own[own["arm"].isin(plain[:1])]


def _read_accuracy(directory: Path) -> pd.DataFrame:
    path = directory / _FILE
    if not path.is_file():
        return pd.DataFrame(columns=ACCURACY_SCHEMA.names)
    try:
        return with_direction(pd.read_parquet(path))[ACCURACY_SCHEMA.names]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path}: damaged ({error}); remove it and evaluate again") from error
