"""One writer per run directory: a second process that tries to resume a run in progress is refused."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # a file system that has none: measuring goes on without


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Holds the directory; the system lets go of it when the process ends, however it ends. ValueError if held."""
    if sys.platform == "win32":
        yield  # no advisory locks of this kind there
        return
    import fcntl

    file = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"resume: {directory} is being measured by another process; wait for its end") from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(file)
