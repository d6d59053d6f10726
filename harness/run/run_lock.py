"""One writer per run directory: a second process that tries to resume a run in progress is refused."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specbench.harness.store.lock_file import LOCK_FILE

_NO_LOCKS = (
    errno.ENOLCK,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
)  # a file system without locks: measuring continues without one


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Locks the directory; the system releases the lock when the process ends, however it ends. ValueError if
    locked."""
    if sys.platform == "win32":
        yield  # no advisory locks of this kind there
        return
    import fcntl

    file = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"resume: {directory} is being measured by another process; wait until it has ended"
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(file)
