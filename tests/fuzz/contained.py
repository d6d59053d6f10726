"""What an input may do: end in a value or in a refusal, in time, and write below its own folder only."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

LIMIT_S = 30
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
_CHANGES = {"os.mkdir": 0, "os.remove": 0, "os.rmdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1}  # argument
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_ALLOWED = ("/dev/null", "/dev/shm", "/proc/self")


class Broken(Exception):
    """What no input may lead to."""


class Hang(BaseException):
    """Not an Exception: nothing on the way may take it for a fault of its own."""


class Watch:
    """Sees what this process opens to write, and what it starts. Made once: Python keeps such hooks for ever."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._starts_allowed = False
        self._seen: list[str] = []
        sys.addaudithook(self._hook)

    @contextmanager
    def within(self, folder: Path, starts_allowed: bool) -> Iterator[None]:
        """Broken if something is written outside `folder`, or started where that is not allowed."""
        self._seen, self._starts_allowed, self._folder = [], starts_allowed, folder.resolve()
        try:
            with mock.patch.object(tempfile, "tempdir", str(folder)):
                yield
        finally:
            self._folder = None
        if self._seen:
            raise Broken("; ".join(self._seen[:3]))

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self._folder is None:
            return
        if event in _STARTS and not self._starts_allowed:
            self._seen.append(f"{event} {args[:2]!r}")
        elif event == "open" and isinstance(args[0], (str, bytes)) and (args[2] or 0) & _WRITES:
            self._check(event, args[0])
        elif event in _CHANGES and isinstance(name := args[_CHANGES[event]], (str, bytes)):
            if args[-1] == -1 or os.path.isabs(name):  # else seen from an open folder, whose path nobody says
                self._check(event, name)

    def _check(self, event: str, name: str | bytes) -> None:
        path = os.path.realpath(os.fsdecode(name))
        if path != str(self._folder) and not path.startswith((f"{self._folder}{os.sep}", *_ALLOWED)):
            self._seen.append(f"{event} {path}")


@contextmanager
def in_time(limit_s: float = LIMIT_S) -> Iterator[None]:
    """Hang after so many seconds, where Python code runs."""

    def end(number: int, frame: object) -> None:
        raise Hang(f"more than {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
