"""Adds a run to a history while other jobs add theirs.

A run appears under its name only when it is whole, by one rename, so jobs that add different runs never wait. Jobs are
serialised only if the name is taken: a run that was added unfinished and has continued since replaces its older copy;
any other run with the same id is refused.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from specbench.harness.judge.stored import StoredRun, read_run
from specbench.harness.store.lock_file import actual_status
from specbench.harness.store.run_record import OVER
from specbench.harness.store.safe_paths import path_inside
from specbench.harness.store.writing import writing

RUNS = "runs"
ADDED, REPLACED, ALREADY = "added", "replaced, it has continued since", "already there"
_LOCK = ".lock"
_LEFT_BEHIND = shutil.ignore_patterns("log", "logs", "children", "plots", "errors.log", ".*", "*.sqlite", "*.json.gz")
_IDENTITY = ["arm", "repeat", "request_id", "prompt_id", "t_submit_ns", "t_first_ns", "t_last_ns", "output_sha256"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """Where a run is now, and what was done: ADDED, REPLACED or ALREADY. `status`: of the given run. is_experiment: an
    A/B run, whose sides are not points of a series."""

    path: Path
    outcome: str
    status: str
    is_experiment: bool


def add_run(history: Path, run: Path) -> Added:
    """Copies a run into the history. ValueError for a run that cannot be read or compared later, for one that changes
    while it is copied, and for a different run with the same id; CannotWriteError if the history cannot be written."""
    given = read_run(run)
    record, run = given.record, given.path
    folder = path_inside(history, RUNS, "history")
    target = path_inside(folder, record.run_id, "run_id")
    temporary = folder / f".{record.run_id}.{secrets.token_hex(4)}"
    with writing("history", history):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            outcome = _put(_copy(run, temporary), run, target, history)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    status = actual_status(run, record.status)
    return Added(path=target, outcome=outcome, status=status, is_experiment=record.ab is not None)


@contextmanager
def one_at_a_time(history: Path) -> Iterator[None]:
    """Waits for other jobs that change the same entry.

    On a file system without such locks, renames still keep every copy whole; only two simultaneous replacements of the
    same run could then undo each other.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    file = os.open(path_inside(history, _LOCK, "history"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
    finally:
        os.close(file)


def _put(copy: StoredRun, run: Path, target: Path, history: Path) -> str:
    """Moves the copy of `run` to `target`, replacing an unfinished older copy if there is one."""
    if _take(copy.path, target):
        return ADDED
    replaced = []
    with one_at_a_time(history):
        try:
            while not _take(copy.path, target):
                if not _goes_on(copy, run, target):
                    return ALREADY
                # Between two renames the run has no name: a reader then misses it once; nothing is lost.
                replaced.append(target.with_name(f".{target.name}.{secrets.token_hex(4)}"))
                os.rename(target, replaced[-1])
        finally:
            for path in replaced:
                shutil.rmtree(path, ignore_errors=True)
    return REPLACED if replaced else ADDED


def _take(temporary: Path, target: Path) -> bool:
    """Whether the rename to `target` worked: it never replaces a directory that is not empty."""
    try:
        os.rename(temporary, target)
    except OSError:
        if not target.exists():
            raise
        return False
    return True


def _copy(run: Path, temporary: Path) -> StoredRun:
    try:
        # A link that appears now is copied as a link, and refused in the copy.
        shutil.copytree(run, temporary, symlinks=True, ignore=_LEFT_BEHIND, copy_function=_copy_file)
        return read_run(temporary)
    except _Full as full:
        raise full.error from full
    except (shutil.Error, FileNotFoundError, ValueError) as error:
        raise ValueError(f"run: {run} changed while it was copied; add it when it has ended ({error})") from error


class _Full(Exception):
    """No OSError, which copytree would collect, to go on with the next file."""

    def __init__(self, error: OSError):
        super().__init__(error)
        self.error = error


def _copy_file(source: str, target: str) -> str:
    try:
        return shutil.copy2(source, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _Full(OSError(error.errno, error.strerror)) from error
        raise


def _goes_on(copy: StoredRun, run: Path, target: Path) -> bool:
    """Whether `copy` is the run at `target` and has more of it. False for the same or less; ValueError for a different
    run with this id."""
    there = read_run(target)
    old, new = _blocks(there), _blocks(copy)
    common = old & new
    same_start = there.record.started_utc == copy.record.started_utc
    if not same_start or common not in (old, new) or not _rows(there, common).equals(_rows(copy, common)):
        raise ValueError(
            f"run: {run}: has the run id of {target}, but its raw tables differ; give it an id of its own or remove one"
        )
    if old != new:
        return old < new
    had_ended, has_ended = (one.record.status in OVER for one in (there, copy))
    if had_ended != has_ended:
        return has_ended
    return _files(target) < _files(copy.path)  # certified or scored since


def _blocks(run: StoredRun) -> frozenset[tuple[str, int]]:
    """Blocks that are final; for an experiment, those with both sides."""
    pairs = run.frames.requests[["arm", "repeat"]].drop_duplicates()
    blocks = frozenset(zip(pairs["arm"], pairs["repeat"], strict=True))
    if run.record.ab is None:
        return blocks
    labels = [arm.label for arm in run.record.arms]
    return frozenset((arm, n) for arm, n in blocks if all((label, n) in blocks for label in labels))


def _rows(run: StoredRun, blocks: frozenset[tuple[str, int]]) -> pd.DataFrame:
    """What distinguishes two measurements of the same blocks: the times of each request and its output."""
    rows = run.frames.requests[_IDENTITY]
    kept = [block in blocks for block in zip(rows["arm"], rows["repeat"], strict=True)]
    return rows[kept].sort_values(_IDENTITY[:3]).reset_index(drop=True)


def _files(run: Path) -> frozenset[Path]:
    """The files that a copy of the run has."""
    files = (path.relative_to(run) for path in run.rglob("*") if path.is_file())
    return frozenset(file for file in files if not _LEFT_BEHIND(str(run), list(file.parts)))
