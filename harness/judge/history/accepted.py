"""`history.toml`: steps that a maintainer has accepted; segments restart there, and the points are not suspects.

[[accepted]]
commit = "3f21af49e86c"
metric = "step_ms"     # optional: all metrics
arm = "eagle:k=4"      # optional: all arms
note = "the head is larger"
utc = "2026-01-02T03:04:05Z"
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specbench.harness.judge.history.adding import one_at_a_time
from specbench.harness.judge.history.points import METRICS, Point, Series
from specbench.harness.judge.history.steps import is_named
from specbench.harness.judge.limits import read_table, unknown
from specbench.harness.store.directories import utc
from specbench.harness.store.files import write_text
from specbench.harness.store.safe_paths import path_inside
from specbench.workloads.guarded import parse_toml, read_text

FILE = "history.toml"
_TABLE = "accepted"
_MIN_COMMIT = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    accepted: list[Any] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """One accepted step: empty `metric` and `arm` mean all."""

    commit: str = ""
    metric: str = ""
    arm: str = ""
    note: str = ""
    utc: str = ""

    def __post_init__(self) -> None:
        if len(self.commit) < _MIN_COMMIT:
            raise ValueError(f"commit: {self.commit!r} is not allowed; at least {_MIN_COMMIT} characters of it")
        if self.metric and self.metric not in METRICS:
            raise ValueError(f"metric: {unknown(self.metric, METRICS)}")

    def concerns(self, arm: str, metric: str) -> bool:
        return self.arm in ("", arm) and self.metric in ("", metric)

    def names(self, point: Point) -> bool:
        return self.concerns(point.arm, point.metric) or self.concerns(point.full_arm, point.metric)


def read_accepted(history: Path) -> list[Accepted]:
    """The accepted steps; ValueError naming the file if it cannot be read as such."""
    path = path_inside(history, FILE, "history")
    if not path.is_file():
        return []
    try:
        file = read_table(_File, parse_toml(read_text(path)), "history")
        return [read_table(Accepted, table, f"{_TABLE} {n + 1}") for n, table in enumerate(file.accepted)]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def accepted_commits(accepted: list[Accepted], series: Series) -> list[str]:
    names = (series.arm, series.alias)  # a later run can change which of them a series goes by
    return [one.commit for one in accepted if any(one.concerns(name, series.metric) for name in names)]


def accept(history: Path, entry: Accepted, points: tuple[Point, ...]) -> Path:
    """Adds `entry` to the file; ValueError for a commit, metric or arm that no run of the history has."""
    if entry.arm and not any(entry.arm in (p.arm, p.full_arm) for p in points):
        raise ValueError(f"arm: {entry.arm!r} has no point here; allowed: {', '.join({p.arm: 0 for p in points})}")
    commits = list(dict.fromkeys(p.commit for p in sorted(points, key=lambda p: p.utc) if entry.names(p)))
    named = [commit for commit in commits if is_named(commit, [entry.commit])]
    if not named:
        newest = ", ".join(dict.fromkeys(commit[:12] for commit in commits[-10:])) or "none"
        raise ValueError(f"commit: {entry.commit!r} has no point here; the newest that have: {newest}")
    if len({commit.partition("+")[0] for commit in named}) > 1:
        raise ValueError(f"commit: {entry.commit!r} is the start of several commits; give more of it")
    path = history / FILE
    dated = {**asdict(entry), "utc": entry.utc or utc()}
    lines = [f"[[{_TABLE}]]", *(f"{name} = {_quoted(value)}" for name, value in dated.items() if value)]
    with one_at_a_time(history):
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        read_accepted(history)  # a file that cannot be read is not added to
        write_text(path, before + ("\n" if before else "") + "\n".join(lines) + "\n")
    return path


def _quoted(value: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's, save for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
