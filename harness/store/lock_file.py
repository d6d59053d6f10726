"""The file by which the process that measures into a directory keeps others out; it locks it in run/run_lock.py."""

from __future__ import annotations

import sys
from pathlib import Path

LOCK_FILE = ".lock"


def is_abandoned(directory: Path) -> bool:
    """Whether certainly no process holds the lock. Writes nothing."""
    path = directory / LOCK_FILE
    if sys.platform == "win32" or not path.is_file():
        return False
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # held, or a file system without locks
            return False
    return True


def actual_status(directory: Path, recorded: str) -> str:
    """As recorded; but `interrupted`, not `running`, where the process that measured was certainly killed."""
    return "interrupted" if recorded == "running" and is_abandoned(directory) else recorded
