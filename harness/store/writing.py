"""Files and directories that cannot be written: one error that names the option."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CannotWriteError(ValueError):
    """Bad input: the file or directory of an option cannot be written."""


@contextmanager
def writing(field: str, path: Path) -> Iterator[None]:
    """Makes an OSError in it one that names the option and its path."""
    try:
        yield
    except OSError as error:
        at_fault = error.filename2 or error.filename or path  # a parent, a file inside, or the path itself
        if isinstance(error, FileExistsError) and not Path(str(at_fault)).is_dir():  # where a folder is to be
            raise CannotWriteError(f"{field}: cannot write to {path}: {at_fault} is not a directory") from error
        where = "" if Path(str(at_fault)) == path else f" ({at_fault})"
        raise CannotWriteError(f"{field}: cannot write to {path}: {error.strerror or error}{where}") from error


def check_writable(field: str, folder: Path) -> None:
    """Before hours of work whose results go there. Creates nothing. CannotWriteError if it cannot be written."""
    whole = folder.absolute()
    existing = next(path for path in (whole, *whole.parents) if path.exists())
    with writing(field, folder):
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))
        if not os.access(existing, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(existing))
