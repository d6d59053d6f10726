"""`history.toml`: steps that a maintainer knows about and accepts; segments restart there and nothing is suspected.

[[accepted]]
commit = "3f21af49e86c"
metric = "step_ms"     # optional: all metrics
arm = "eagle:k=4"      # optional: all arms
note = "the head is larger"
utc = "2026-01-02T03:04:05Z"
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from specbench.harness.judge.history.adding import one_at_a_time
from specbench.harness.judge.history.points import METRICS, Point
from specbench.harness.judge.history.steps import is_named
from specbench.harness.judge.limits import key, read_table, text, unknown
from specbench.harness.store.files import write_atomically
from specbench.harness.store.safe_paths import path_inside
from specbench.harness.text import tomllib

FILE = "history.toml"
_TABLE = "accepted"
_LEAST_COMMIT = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """One accepted step: empty `metric` and `arm` mean all."""

    commit: str = key(text, "")
    metric: str = key(text, "")
    arm: str = key(text, "")
    note: str = key(text, "")
    utc: str = key(text, "")

    def __post_init__(self) -> None:
        if len(self.commit) < _LEAST_COMMIT:
            raise ValueError(f"commit: {self.commit!r} is not allowed; at least {_LEAST_COMMIT} characters of it")
        if self.metric and self.metric not in METRICS:
            raise ValueError(f"metric: {unknown(self.metric, METRICS)}")

    def concerns(self, arm: str, metric: str) -> bool:
        return self.arm in ("", arm) and self.metric in ("", metric)

    def names(self, point: Point) -> bool:
        return self.concerns(point.arm, point.metric) or self.concerns(point.full_arm, point.metric)


def read_accepted(history: Path) -> list[Accepted]:
    """What has been accepted; ValueError naming the file for what it cannot be read as."""
    path = path_inside(history, FILE, "history")
    if not path.is_file():
        return []
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        others = [name for name in raw if name != _TABLE]
        if others:
            raise ValueError(unknown(others[0], [_TABLE]))
        return [read_table(Accepted, table, f"{_TABLE} {n + 1}") for n, table in enumerate(raw.get(_TABLE, []))]
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error


def accepted_commits(accepted: list[Accepted], arm: str, metric: str) -> list[str]:
    return [one.commit for one in accepted if one.concerns(arm, metric)]


def accept(history: Path, entry: Accepted, points: tuple[Point, ...]) -> Path:
    """Adds `entry` to the file; ValueError for a commit, metric or arm that no run of the history has."""
    concerned = sorted((p for p in points if entry.names(p)), key=lambda p: p.utc)
    if entry.arm and not any(entry.arm in (p.arm, p.full_arm) for p in points):
        raise ValueError(f"arm: {entry.arm!r} has no point here; allowed: {', '.join({p.arm: 0 for p in points})}")
    own = [p for p in concerned if is_named(p.commit, [entry.commit])]
    if not own:
        known = list(dict.fromkeys(p.commit[:12] for p in concerned))
        raise ValueError(
            f"commit: {entry.commit!r} has no point here; the newest that have: {', '.join(known[-10:]) or 'none'}"
        )
    if len({p.commit for p in own if not p.commit.endswith("+")}) > 1:
        raise ValueError(f"commit: {entry.commit!r} is the start of several commits; give more of it")
    path = history / FILE
    dated = {**asdict(entry), "utc": entry.utc or datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
    lines = [f"[[{_TABLE}]]", *(f"{name} = {_quoted(value)}" for name, value in dated.items() if value)]
    with one_at_a_time(history):
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        read_accepted(history)  # a file that cannot be read is not added to
        whole = before + ("\n" if before else "") + "\n".join(lines) + "\n"
        write_atomically(path, lambda temporary: temporary.write_text(whole, encoding="utf-8"))
    return path


def _quoted(value: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's, save for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
