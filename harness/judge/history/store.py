"""A directory to which many jobs add runs: one directory per run, nothing shared (adding.py).

HISTORY/runs/<run id>/        the run as it was made, without logs and traces
HISTORY/history.toml          steps that a maintainer has accepted
HISTORY/.index.json           a cache of every run's points; delete it at any time
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from specbench.harness.judge.history.adding import RUNS
from specbench.harness.judge.history.points import Point, points_of
from specbench.harness.judge.stored import WRONG_SHAPE, Problem, read_run
from specbench.harness.store.codec import read_document, write_document
from specbench.harness.store.safe_paths import path_inside

INDEX = ".index.json"
_INDEX_SCHEMA = "specbench.history-index/6"  # to be raised with every change of what a point holds


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """The points of all runs that could be read, and the runs that could not. `num_runs`: both, and runs without
    points."""

    path: Path
    num_runs: int
    points: tuple[Point, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """What was computed from a run whose files had this signature."""

    signature: str
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Index:
    """`runs`: by path relative to the history."""

    schema: str = _INDEX_SCHEMA
    runs: Mapping[str, _Entry]


def read_history(history: Path, watched: Callable[[Sequence[Path]], Iterable[Path]] = iter) -> History:
    """All runs below `history`, using the cache; a run whose files have changed is read again. `watched` yields their
    directories one by one."""
    if history.exists() and not history.is_dir():
        raise ValueError(f"history: {history} is not a directory; give the one of `specbench history add`")
    if not history.is_dir():
        raise ValueError(f"history: {history} does not exist; make it with `specbench history add {history} RUN`")
    directories, problems = _directories(history)
    cache, kept = _read_index(history), {}
    points: list[Point] = []
    for directory in watched(directories):
        signature, name = _signature(directory), str(directory.relative_to(history))
        entry = cache.get(name)
        if entry is None or entry.signature != signature:
            try:
                entry = _Entry(signature=signature, points=tuple(points_of(read_run(directory))))
            except (ValueError, *WRONG_SHAPE) as error:
                problems.append(Problem.of(directory, error))
                continue
        kept[name] = entry
        points += [replace(point, path=str(directory)) for point in entry.points]  # a history may be moved
    if kept != cache:
        with suppress(OSError):  # a cache that cannot be written (a history mounted read-only) costs time only
            write_document(history / INDEX, _Index(runs=kept))
    unique, doubled = _unique(points)
    return History(path=history, num_runs=len(directories), points=tuple(unique), problems=(*problems, *doubled))


def _directories(history: Path) -> tuple[list[Path], list[Problem]]:
    """Run directories, in `runs/` and directly below; anything that looks like a run but has no run.json is
    reported."""
    found, problems = [], []
    for parent in (path_inside(history, RUNS, "history"), history):
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            if path.name.startswith(".") or not path.is_dir() or path == history / RUNS:
                continue
            if path.is_symlink():
                problems.append(Problem.at(path, "is a symbolic link, which is never followed"))
            elif not os.access(path, os.R_OK | os.X_OK):
                problems.append(Problem.at(path, "cannot be read: permission denied"))
            elif (path / "run.json").is_file():
                found.append(path)
            else:
                problems.append(Problem.at(path, "no run.json: incomplete, or not a run"))
    return found, problems


def _signature(directory: Path) -> str:
    """Size and time of the files that the points are computed from."""
    files = sorted([*directory.glob("*.parquet"), *directory.glob("parts/*.parquet"), directory / "run.json"])
    stats = ((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files)
    return json.dumps(list(stats))


def _read_index(history: Path) -> Mapping[str, _Entry]:
    """Empty for a missing, damaged or older cache, which is then rewritten."""
    try:
        return read_document(path_inside(history, INDEX, "history"), _Index, _INDEX_SCHEMA).runs
    except (OSError, ValueError):
        return {}


def _unique(points: Iterable[Point]) -> tuple[list[Point], list[Problem]]:
    """Each run id once, from the first directory; the others are reported."""
    owners: dict[str, str] = {}
    kept, problems = [], {}
    for point in points:
        owner = owners.setdefault(point.run_id, point.path)
        if owner == point.path:
            kept.append(point)
        else:
            problems[point.path] = Problem.at(point.path, f"has the run id of {owner}; the first is used")
    return kept, list(problems.values())
