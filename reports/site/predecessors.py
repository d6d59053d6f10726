"""The predecessor of a run: the newest comparable older run of its kind with an arm in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench.harness.judge.keys import mismatches

from .groups import Group, by_kind
from .runs import SiteRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Follows:
    """`before`: the newest older run of the kind. `comparable`: the newest that differs in nothing relevant. `refused`:
    the runs in between, each with the reason why it cannot be compared."""

    run: SiteRun
    before: SiteRun | None
    comparable: SiteRun | None
    refused: tuple[tuple[SiteRun, tuple[str, ...]], ...]


def followers(runs: Sequence[SiteRun]) -> Mapping[str, Follows]:
    """By page, for every run (newest first) that has arms; experiments are compared with experiments."""
    groups = by_kind(run for run in runs if run.arms)
    return {run.page: _follows(group, n) for group in groups for n, run in enumerate(group.runs)}


def _follows(group: Group, n: int) -> Follows:
    run = group.runs[n]
    labels = {arm.label for arm in run.arms}
    refused: list[tuple[SiteRun, tuple[str, ...]]] = []
    before = comparable = None
    for other in group.runs[n + 1 :]:
        if labels.isdisjoint(arm.label for arm in other.arms):
            continue
        before = before or other
        found = tuple(m.describe() for m in mismatches(run.run_id, other.record, run.record))
        if not found:
            comparable = other
            break
        refused.append((other, found))
    return Follows(run=run, before=before, comparable=comparable, refused=tuple(refused))
