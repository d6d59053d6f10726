"""From runs to series: one point a commit for each arm and metric of one workload."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specbench.harness.compare.figures import FIGURES, Side, median
from specbench.harness.compare.keys import comparison_keys
from specbench.harness.compare.stored import StoredRun

SYNCS = "syncs_per_round"
METRICS: Mapping[str, str] = {**{figure.key: figure.better for figure in FIGURES}, SYNCS: "lower"}
"""Metrics of a history, and which way is better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One metric of one arm in one run. `value`: median over the repeats. case: hash of workload and sampling.
    fingerprint: hash of hardware and schema, with its text beside it. commit: as in git, `+` for local changes; the run
    id where the code came from no checkout."""

    run_id: str
    path: str
    utc: str
    commit: str
    case: str
    case_text: str
    fingerprint: str
    fingerprint_text: str
    arm: str
    metric: str
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """All runs of one commit on one kind of machine, one after another: `value` is the median over them."""

    commit: str
    utc: str
    value: float
    num_runs: int
    fingerprint: str
    fingerprint_text: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One metric of one arm and workload through time, in the order in which commits were first measured."""

    case: str
    case_text: str
    arm: str
    metric: str
    commits: tuple[Commit, ...]

    @property
    def values(self) -> np.ndarray:
        return np.array([c.value for c in self.commits])


def points_of(run: StoredRun) -> list[Point]:
    """Every metric that is a number, of every arm with figures."""
    keys = comparison_keys(run.manifest)
    case = {"workload": keys["workload"], "sampling": keys["sampling"]}
    machine = {"hardware": keys["hardware"], "schema": run.manifest["schema"]}
    found = []
    for arm in run.arms:
        values = {figure.key: median(figure, Side(run=run, arm=arm)) for figure in FIGURES}
        values[SYNCS] = _mean(block[SYNCS] for block in run.blocks(arm).values())
        for metric, value in values.items():
            if value is None or not math.isfinite(value):
                continue
            found.append(
                Point(
                    run_id=run.run_id,
                    path=str(run.path),
                    utc=str(run.manifest.get("started_utc", "")),
                    commit=_commit(run),
                    case=_hash(case),
                    case_text=f"{keys['workload']['model']}, {keys['workload']['name']}",
                    fingerprint=_hash(machine),
                    fingerprint_text=_machine_text(keys["hardware"]),
                    arm=arm,
                    metric=metric,
                    value=value,
                )
            )
    return found


def build_series(points: Iterable[Point]) -> list[Series]:
    """Points by workload, arm and metric; a commit that was measured again keeps its first place."""
    groups: dict[tuple[str, str, str], list[Point]] = {}
    for point in sorted(points, key=lambda p: (p.utc, p.run_id)):
        groups.setdefault((point.case, point.arm, point.metric), []).append(point)
    return [
        Series(case=case, case_text=own[0].case_text, arm=arm, metric=metric, commits=tuple(_commits(own)))
        for (case, arm, metric), own in groups.items()
    ]


def _commits(points: list[Point]) -> list[Commit]:
    by_commit: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        by_commit.setdefault((point.commit, point.fingerprint), []).append(point)
    return [
        Commit(
            commit=commit,
            utc=own[0].utc,
            value=float(np.median([p.value for p in own])),
            num_runs=len(own),
            fingerprint=fingerprint,
            fingerprint_text=own[0].fingerprint_text,
            run_ids=tuple(p.run_id for p in own),
        )
        for (commit, fingerprint), own in by_commit.items()
    ]


def _commit(run: StoredRun) -> str:
    git: Mapping[str, Any] = run.manifest.get("git") or {}
    sha = git.get("sha")
    return f"{sha}{'+' if git.get('dirty') else ''}" if sha else run.run_id


def _machine_text(hardware: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in hardware.items() if value not in ("none", "unknown"))


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
