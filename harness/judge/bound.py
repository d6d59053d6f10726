"""What better choices of drafts would give in a stored run, and the remaining gap above its arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specbench.harness.judge.bound_rows import BoundRow, Outputs, better_rows, round_costs
from specbench.harness.judge.drafters import Drafter, Recorded, drafters_of
from specbench.harness.metrics.run_results import results_of
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.sweep_directory import SweepDirectory, is_sweep

SCHEMA = "specbench.bound/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class DrafterFacts:
    """`round_ms`: by K, index 0 without drafts. `measured`: the measured values of K. `num_shared`: positions at which
    two arms began a round; `num_equal`: those at which both accepted the same."""

    name: str
    round_ms: tuple[float, ...]
    measured: tuple[int, ...]
    num_shared: int
    num_equal: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The bounds of one run. `best`: the measured arm with the lowest TPOT, no-spec included. `max_concurrency`: its
    load."""

    schema: str = SCHEMA
    run_id: str
    max_concurrency: int | None
    mean_batch: float
    baseline: str
    best: str
    rows: tuple[BoundRow, ...]
    drafters: tuple[DrafterFacts, ...]
    num_requests: int
    num_tokens: int
    left_out: tuple[str, ...]
    is_synthetic: bool

    def row(self, *what: str) -> BoundRow | None:
        """The fastest row of these kinds; None if there is none."""
        return min((row for row in self.rows if row.what in what), key=lambda row: row.tpot_ms, default=None)


def bounds(
    path: Path, watched: Callable[[Sequence[RunDirectory]], Iterable[RunDirectory]]
) -> list[tuple[RunDirectory, Bound]]:
    """The bound of a run, or of each load of a sweep, which `watched` yields one by one. ValueError says why there is
    none."""
    runs = list(SweepDirectory.open(path).runs().values()) if is_sweep(path) else [RunDirectory.open(path)]
    return [(run, bound_of(run)) for run in watched(runs)]


def bound_of(run: RunDirectory) -> Bound:
    """ValueError for a run without no-spec, or without an arm that shows what rounds of chains accepted."""
    run.check_has_tables()
    base, drafters, chosen, left_out = drafters_of(run)
    used = [base, *(arm for drafter in drafters for arm in drafter.arms.values()), *chosen]
    outputs = _outputs(used)
    if not outputs:
        raise ValueError(f"run: {run.record.run_id}: no request was served by all of {[arm.label for arm in used]}")
    marks = {arm.label: arm.marks for arm in results_of(run).arms}
    tables = [round_costs(base, drafter) for drafter in drafters]
    measured = [replace(_measured(arm), marks=marks.get(arm.label, ())) for arm in used]
    rows = [*measured, *better_rows(drafters, tables, outputs)]
    best = min(measured, key=lambda row: row.tpot_ms)
    sampling = run.record.sampling
    return Bound(
        run_id=run.record.run_id,
        max_concurrency=sampling.max_concurrency if sampling else None,
        mean_batch=max(arm.mean_batch for arm in used),
        baseline=base.label,
        best=best.name,
        rows=tuple(_against(measured[0], row) for row in rows),
        drafters=tuple(_facts(drafter, costs, outputs) for drafter, costs in zip(drafters, tables, strict=True)),
        num_requests=len(outputs),
        num_tokens=sum(len(tokens) - 1 for tokens in outputs.values()),
        left_out=tuple(left_out),
        is_synthetic=any(arm.is_synthetic for arm in used),
    )


def _outputs(arms: Sequence[Recorded]) -> Outputs:
    """For each request that all arms served: the output that most of them gave, if it has two tokens or more."""
    shared = set.intersection(*(set(arm.outputs) for arm in arms))
    most = {
        key: Counter(arm.outputs[key] for arm in arms).most_common(1)[0][0] for key in arms[0].outputs if key in shared
    }
    return {key: tokens for key, tokens in most.items() if len(tokens) > 1}


def _measured(arm: Recorded) -> BoundRow:
    return BoundRow(
        name=arm.label,
        what="measured",
        drafts="auto" if arm.is_auto else str(arm.num_drafts),
        tpot_ms=arm.tpot_ms,
        low_ms=arm.tpot_ms,
        high_ms=arm.tpot_ms,
        acceptance_length=arm.acceptance_length,
        tokens_per_forward=arm.tokens_per_forward,
    )


def _against(base: BoundRow, row: BoundRow) -> BoundRow:
    """Adds the ratios. The lowest time gives the highest ratio."""
    slow, fast = (base.tpot_ms / ms for ms in (row.high_ms, row.low_ms))
    return replace(row, ratio=base.tpot_ms / row.tpot_ms, low=slow, high=fast)


def _facts(drafter: Drafter, costs: Sequence[float], outputs: Outputs) -> DrafterFacts:
    num_shared, num_equal = drafter.agreement(outputs)
    return DrafterFacts(
        name=drafter.name,
        round_ms=tuple(costs),
        measured=(0, *sorted(drafter.arms)),
        num_shared=num_shared,
        num_equal=num_equal,
    )
