"""The gate of an A/B run that no policy has to name: whether what was measured is a measurement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specbench.harness.judge import gate_result as g
from specbench.harness.judge.comparison import FALSE_CHANGE
from specbench.harness.judge.gate_result import Checked, GateResult
from specbench.harness.judge.limits import percent
from specbench.harness.judge.overall import MOST_REJECTED
from specbench.harness.judge.stored import StoredRun
from specbench.harness.stats.verdict import IMPROVED, REGRESSED

NAME = "ab_blocks"
_LIMIT = f"all measured, 6 or more count, at most {percent(MOST_REJECTED)} rejected, no change between equal sides"


def blocks_results(checked: Checked, timed: Sequence[GateResult]) -> Iterator[GateResult]:
    """Of the run and, where it is another, of its baseline; nothing for runs that are no A/B. `timed`: timed gates."""
    other = checked.baseline if checked.baseline is not checked.run else None
    for subject, run in (("", checked.run), ("baseline", other)):
        if run is not None and run.experiment is not None:
            changed = run is checked.baseline and any(_is_change(result) for result in timed)
            yield _result(run, subject, changed)


def _is_change(result: GateResult) -> bool:
    return result.comparison is not None and result.comparison.verdict in (IMPROVED, REGRESSED)


def _result(run: StoredRun, subject: str, changed: bool) -> GateResult:
    assert run.experiment is not None
    reason = run.experiment.no_verdict()
    if not reason and run.experiment.is_aa and changed and not subject:
        reason = FALSE_CHANGE
    return GateResult(
        gate=NAME,
        kind=g.VALIDITY,
        arm="A, B",
        subject=subject,
        status=g.FAILED if reason else g.PASSED,
        value=float(run.experiment.num_rejected),
        limit=_LIMIT,
        reason=reason,
    )
