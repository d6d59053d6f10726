"""The gate of accuracy: scores paired item by item, in the direction that lm-eval records for the metric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.gate_result import Checked, Gate, GateResult
from specbench.harness.judge.limits import Share, percent
from specbench.harness.metrics.accuracy import DIRECTION, TASK_KEYS, paired, read_accuracy
from specbench.harness.metrics.figures import ACCURACY
from specbench.harness.registry import BASELINE
from specbench.harness.stats.paired import holm_of_known
from specbench.harness.stats.power import ALPHA
from specbench.harness.store.results import ItemPairs


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scores:
    """An arm on one task, filter and metric. pairs: None without scores. sign: 1 if higher is better, -1 if lower is,
    0 if that was not recorded."""

    arm: str
    subject: str = ""
    pairs: ItemPairs | None = None
    sign: int = 0
    num_left_out: int = 0

    @property
    def p_test(self) -> float | None:
        """None if no test was possible."""
        return self.pairs.p_test if self.sign and self.pairs is not None else None


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyGate(Gate):
    """Scores, paired item by item, are no more than `max_drop` worse than the reference's: the same arm of the baseline
    (the policy's baseline arm, A of an A/B run), or `no-spec` of the same run if that was not evaluated. lm-eval's
    metric decides which direction is worse. `alpha`: chance of a false loss over all arms, tasks, filters and metrics
    together (Holm)."""

    name: ClassVar[str] = ACCURACY.key
    kind: ClassVar[str] = g.CORRECTNESS
    max_drop: Share = Share(0.01)
    alpha: Share = Share(ALPHA)

    def limit(self, worse: str = "worse") -> str:
        return f"at most {percent(self.max_drop)} {worse}"

    def results(self, checked: Checked) -> Iterator[GateResult]:
        scores = list(_scores(checked))
        for one, p_holm in zip(scores, holm_of_known([one.p_test for one in scores]), strict=True):
            status, reason = self._status(one, p_holm)
            value = one.pairs.difference if one.pairs is not None else None
            found = self.result(one.arm, status, reason, subject=one.subject, value=value)
            yield replace(found, limit=self.limit({1: "lower", -1: "higher", 0: "worse"}[one.sign]))

    def _status(self, one: _Scores, p_holm: float | None) -> tuple[str, str]:
        pairs = one.pairs
        if pairs is None:
            return g.NO_DATA, "no scores of this arm and of a reference"
        if not pairs.n:
            return g.NO_DATA, "no item with a score on both sides"
        if not one.sign:
            return g.NO_DATA, "no verdict: whether higher or lower is better was not recorded; evaluate again"
        left_out = f"; {one.num_left_out} items without a score left out" if one.num_left_out else ""
        if p_holm is None:
            return g.INCONCLUSIVE, f"a single item has no interval{left_out}"
        assert pairs.difference is not None and pairs.low is not None and pairs.high is not None
        reason = f"{pairs.difference:+.1%} [{pairs.low:+.1%}, {pairs.high:+.1%}] over {pairs.n} items, "
        if pairs.p is None:
            reason += f"paired t, scores other than 0 and 1, p (Holm) {p_holm:.2g}"
        else:
            reason += f"McNemar p (Holm) {p_holm:.2g}, can see {pairs.detectable:.1%}"
        status = g.INCONCLUSIVE
        if one.sign * pairs.difference < -self.max_drop and p_holm <= self.alpha:
            status = g.FAILED
        elif min(one.sign * pairs.low, one.sign * pairs.high) >= -self.max_drop:
            status = g.PASSED
        return status, reason + left_out


def _scores(checked: Checked) -> Iterator[_Scores]:
    stored = read_accuracy(checked.run.path)
    for arm in checked.arms:
        rows, other = stored[stored["arm"] == arm], _reference_rows(checked, arm, stored)
        if checked.run.record.arm(arm).strategy == BASELINE and other.empty:
            continue
        if rows.empty or other.empty:
            yield _Scores(arm=arm)
            continue
        for names in pd.concat([rows, other])[TASK_KEYS].drop_duplicates().itertuples(index=False, name=None):
            same, group = (side[(side[TASK_KEYS] == list(names)).all(axis=1)] for side in (other, rows))
            scored = [side[np.isfinite(side["value"].astype(float))] for side in (same, group)]
            yield _Scores(
                arm=arm,
                subject=", ".join(str(names[n]) for n in (0, 2, -1)),
                pairs=paired(*scored),
                sign=_sign(pd.concat([same[DIRECTION], group[DIRECTION]])),
                num_left_out=len(group) - len(scored[1]),
            )


def _sign(directions: pd.Series) -> int:
    """0 if a side does not record it, or if the two contradict each other."""
    found = set(directions.astype(object).where(directions.notna(), None))
    return {frozenset({True}): 1, frozenset({False}): -1}.get(frozenset(found), 0)


def _reference_rows(checked: Checked, arm: str, stored: pd.DataFrame) -> pd.DataFrame:
    base = checked.base(arm)
    if base is not None:
        rows = stored if checked.is_inner else read_accuracy(base.run.path)
        if not (of_base := rows[rows["arm"] == base.arm]).empty:
            return of_base
    plain = [a.label for a in checked.run.record.arms if a.strategy == BASELINE and a.label != arm]
    return stored[stored["arm"].isin(plain[:1])]
