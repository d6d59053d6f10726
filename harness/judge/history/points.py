"""Series from runs: one point per commit for each arm and metric of a workload."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from specbench.harness.judge.figures import Side, median
from specbench.harness.judge.keys import comparison_keys
from specbench.harness.judge.rerun import load_options
from specbench.harness.judge.stored import StoredRun
from specbench.harness.metrics.figures import COMPARED, SYNCS_PER_ROUND, Figure
from specbench.harness.store.environment import GitState
from specbench.harness.store.files import sha256_json
from specbench.harness.store.inputs_record import ModelRecord
from specbench.harness.store.run_record import RunRecord

METRICS: Mapping[str, Figure] = {figure.key: figure for figure in (*COMPARED, SYNCS_PER_ROUND)}
"""Metrics of a history."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One metric of one arm in one run. `value`: median over the repeats.

    case: hash of model, workload and sampling. arm, full_arm: its label, and its full configuration, whether the label
    shows it or not. fingerprint: hash of the hardware, with its text. commit: as in git, for local changes with `+` and
    their hash; the run id if the code came from no checkout. driven: how its engine was driven, in process or HTTP;
    None if the run does not record it. options: of the run's command, which a paired rerun needs too.
    """

    run_id: str
    path: str
    utc: str
    commit: str
    case: str
    case_text: str
    fingerprint: str
    fingerprint_text: str
    arm: str
    full_arm: str
    metric: str
    value: float
    driven: str | None = None
    options: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """All runs of one commit on one kind of machine, driven alike, in sequence: `value` is the median over them."""

    commit: str
    utc: str
    value: float
    num_runs: int
    fingerprint: str
    fingerprint_text: str
    run_ids: tuple[str, ...]
    driven: str | None = None
    options: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One metric of one arm and workload through time, in the order in which commits were first measured. `alias`: the
    arm's label or its full configuration, whichever `arm` is not."""

    case: str
    case_text: str
    arm: str
    metric: str
    commits: tuple[Commit, ...]
    alias: str = ""

    @property
    def values(self) -> np.ndarray:
        return np.array([c.value for c in self.commits])


def points_of(run: StoredRun) -> list[Point]:
    """Every numeric metric of every arm with figures; empty for an A/B run, whose sides do not form a series, and for
    a pooled run, whose parts are runs of their own."""
    if run.record.ab is not None or run.record.pooled:
        return []
    keys = comparison_keys(run.record)
    model = _model(run.record)
    # Options that are not set are left out: a new option must not rename the series of runs without it.
    sampling = {key: value for key, value in keys["sampling"].items() if value != "none"}
    case = {"workload": keys["workload"], "sampling": sampling, "model": model}
    full_names, options = _full_names(run.record), load_options(run.record)
    found = []
    for arm in run.arms:
        values = {figure.key: median(figure, Side(run=run, arm=arm)) for figure in COMPARED}
        values[SYNCS_PER_ROUND.key] = _mean(block[SYNCS_PER_ROUND.block] for block in run.blocks(arm).values())
        for metric, value in values.items():
            if value is None or not math.isfinite(value):
                continue
            found.append(
                Point(
                    run_id=run.run_id,
                    path=str(run.path),
                    utc=run.record.started_utc,
                    commit=_commit(run),
                    case=_hash(case),
                    case_text=", ".join([keys["workload"]["model"], keys["workload"]["name"], *model.values()]),
                    fingerprint=_hash(keys["hardware"]),
                    fingerprint_text=_machine_text(keys["hardware"]),
                    arm=arm,
                    full_arm=full_names.get(arm, arm),
                    metric=metric,
                    value=value,
                    driven=run.record.arm(arm).config.driven,
                    options=options,
                )
            )
    return found


def build_series(points: Iterable[Point]) -> list[Series]:
    """Points by workload, arm and metric; a commit that was measured again keeps its first place.

    An arm is named by its label, or by its full configuration if runs use one label for different ones. Machines that
    alternate have separate series; a machine that replaces another continues the same series, in a new segment.
    """
    ordered = sorted(points, key=lambda p: (p.utc, p.run_id))
    meant: dict[tuple[str, str], set[str]] = {}
    for point in ordered:
        meant.setdefault((point.case, point.arm), set()).add(point.full_arm)
    groups: dict[tuple[str, str, str], list[Point]] = {}
    for point in ordered:
        name = point.arm if len(meant[point.case, point.arm]) == 1 else point.full_arm
        groups.setdefault((point.case, name, point.metric), []).append(point)
    taken_turns = {key[0] for key, own in groups.items() if _take_turns(_commits(own))}
    series = []
    for (case, arm, metric), own in groups.items():
        for machine, of_machine in _by_machine(own).items() if case in taken_turns else [("", own)]:
            text = ", on ".join(filter(None, [own[0].case_text, of_machine[0].fingerprint_text if machine else ""]))
            alias = next((name for name in (own[0].arm, own[0].full_arm) if name != arm), "")
            commits = tuple(_commits(of_machine))
            series.append(
                Series(case=case + machine, case_text=text, arm=arm, alias=alias, metric=metric, commits=commits)
            )
    return series


def _take_turns(commits: list[Commit]) -> bool:
    """Whether a machine comes back after another one: two kinds of runners, not a replacement."""
    machines = [c.fingerprint for n, c in enumerate(commits) if n == 0 or c.fingerprint != commits[n - 1].fingerprint]
    return len(set(machines)) < len(machines)


def _by_machine(points: list[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.fingerprint, []).append(point)
    return found


def _commits(points: list[Point]) -> list[Commit]:
    by_commit: dict[tuple[str, str, str | None], list[Point]] = {}
    for point in points:
        by_commit.setdefault((point.commit, point.fingerprint, point.driven), []).append(point)
    return [
        Commit(
            commit=commit,
            utc=own[0].utc,
            value=statistics.median(p.value for p in own),
            num_runs=len(own),
            fingerprint=fingerprint,
            fingerprint_text=own[0].fingerprint_text,
            run_ids=tuple(p.run_id for p in own),
            driven=driven,
            options=own[-1].options,
        )
        for (commit, fingerprint, driven), own in by_commit.items()
    ]


def _commit(run: StoredRun) -> str:
    return (run.record.git or GitState()).revision or run.run_id


def _model(record: RunRecord) -> dict[str, str]:
    """What distinguishes models of the same name, as far as the run records it."""
    model = record.model or ModelRecord()
    found = {
        "dtype": model.dtype,
        "device": model.device,
        "num_layers": f"{model.num_layers} layers" if model.num_layers else None,
        "num_ranks": f"{model.num_ranks} ranks" if model.num_ranks else None,
        "synthetic": "random weights" if model.synthetic else None,
    }
    return {name: text for name, text in found.items() if text}


def _full_names(record: RunRecord) -> dict[str, str]:
    """By label, the arm with every requested switch; empty for a run of another program."""
    return {arm.label: arm.text for arm in record.config.arms} if record.config else {}


def _machine_text(hardware: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in hardware.items() if value not in ("none", "unknown"))


def _hash(value: Mapping[str, Mapping[str, str] | str]) -> str:
    return sha256_json(value)[:12]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
