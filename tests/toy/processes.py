"""Real processes that do not want to end, and a look through /proc for what is left of them."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

# Each leaves processes behind that ignore SIGTERM; `mark` is in the command line of all of them.
_STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
kind = sys.argv[1]
if kind in ("double-fork", "leaves"):
    if os.fork() == 0:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
    elif kind == "leaves":
        print("all good", flush=True)
        print("Error: out of words", flush=True)
        os._exit(3)
elif kind == "threads":
    for _ in range(3):
        if os.fork() == 0:
            os.setpgid(0, 0)
            break
elif kind == "chain":
    print("ready", flush=True)
    end = time.monotonic() + 20
    while time.monotonic() < end and os.fork() == 0:
        time.sleep(0.01)
    os._exit(0)
print("ready", flush=True)
time.sleep(300)
"""


def stubborn(kind: str) -> tuple[list[str], str]:
    """A command and the mark of all its processes. `double-fork`: a descendant whose parents are gone, in a session of
    its own; `threads`: children in groups of their own; `leaves`: the command ends with 3, its descendant stays;
    `chain`: each process starts the next and ends after 10 ms, for 20 s."""
    mark = f"mark-{uuid.uuid4().hex}"
    return [sys.executable, "-S", "-c", _STUBBORN, kind, mark], mark


def marked(mark: str) -> list[int]:
    """Live processes with this mark in their command line; supervisors have it too."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [pid for pid in found if pid != os.getpid()]


def eventually(holds: Callable[[], bool], within_s: float = 120.0) -> bool:
    """Whether it holds before the time is over."""
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
