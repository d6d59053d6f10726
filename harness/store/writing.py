"""Directories that cannot be written: one error that names the option."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CannotWriteError(ValueError):
    """Bad input: the directory of an option cannot be written."""


@contextmanager
def writing(field: str, folder: Path) -> Iterator[None]:
    """Makes an OSError in it one that names the option and its directory."""
    try:
        yield
    except OSError as error:
        raise CannotWriteError(f"{field}: cannot write to {folder}: {error.strerror or error}") from error
