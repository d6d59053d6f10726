"""What a sweep says about the best number of drafts by load, for `k=auto` (store/draft_table.py)."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.judge.drafters import Recorded, drafters_of
from specbench.harness.spec.arm import parse_arm
from specbench.harness.store.draft_table import CountTimes, DraftTable, DraftTables, LoadTimes
from specbench.harness.store.environment import Environment
from specbench.harness.store.sweep_directory import SweepDirectory


def draft_tables(sweep: SweepDirectory) -> DraftTables:
    """The table of each chain of the sweep, over the loads measured so far. Rounds without drafts are no-spec's."""
    record, found, left_out = sweep.record, dict[int, dict[str, Recorded]](), list[str]()
    bases: dict[int, Recorded] = {}
    for load, run in sweep.runs().items():
        try:
            bases[load], drafters, _, missing = drafters_of(run)
        except ValueError as error:
            left_out.append(f"load {load}: {error}")
            continue
        found[load] = {arm.label: arm for drafter in drafters for arm in drafter.arms.values()}
        left_out += [f"load {load}: {why}" for why in missing]
    tables = []
    for family in dict.fromkeys(arm.family for arm in record.arms):
        labels = {arm.num_drafts: arm.label for arm in record.arms if arm.family == family and arm.num_drafts}
        arms = {load: {k: own[label] for k, label in labels.items() if label in own} for load, own in found.items()}
        if table := _table(family, bases, arms):
            tables.append(table)
    first = next((run.record for run in sweep.runs().values()), None)
    return DraftTables(
        sweep_id=record.sweep_id,
        model=first.model.name if first and first.model else None,
        hardware=(first.environment if first else Environment()).describe_hardware(),
        tables=tuple(tables),
        left_out=tuple(left_out),
    )


def _table(family: str, bases: dict[int, Recorded], arms: dict[int, dict[int, Recorded]]) -> DraftTable | None:
    """None if no number of drafts was measured at every measured load."""
    counts = sorted(set.intersection(*(set(own) for own in arms.values()))) if arms else []
    named = parse_arm(family)
    if not counts or named.engine_name:
        return None
    longest = [own[counts[-1]] for own in arms.values()]
    return DraftTable(
        strategy=named.strategy,
        options=named.options,
        acceptance=tuple(_acceptance(longest, position) for position in range(1, counts[-1] + 1)),
        loads=tuple(_load(load, {0: bases[load], **{k: arms[load][k] for k in counts}}) for load in sorted(arms)),
    )


def _load(load: int, arms: dict[int, Recorded]) -> LoadTimes:
    return LoadTimes(
        max_concurrency=load,
        best=min(arms, key=lambda k: arms[k].tpot_ms),
        times=tuple(CountTimes(num_drafts=k, round_ms=a.round_ms, tpot_ms=a.tpot_ms) for k, a in arms.items()),
    )


def _acceptance(arms: Sequence[Recorded], position: int) -> float:
    """Share of the rounds that accept this draft, of those that accept the previous one; a missing draft counts as not
    accepted."""
    counts = [one.accepted for arm in arms for rounds in arm.rounds.values() for one in rounds]
    reached = sum(count >= position - 1 for count in counts)
    return sum(count >= position for count in counts) / reached if reached else 0.0
