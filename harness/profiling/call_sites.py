"""The Python line of each call that may wait for the GPU, from the stacks that a torch trace may have.

vLLM's own profiler records them by default. A frame is an event as long as its function's run time; the innermost frame
that contains the call, and is not torch's, is where the program waits.
"""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

FRAME = "python_function"
Frame = tuple[str, int, int, int]  # name, t0, t1, tid

_WAITS = re.compile(r"cu(da)?(\w*Synchronize|Memcpy\w*|Free\w*)(_v\d+|_ptsz|_ptds)*")
_NOT_THE_PROGRAMS = re.compile(r"(.*/)?(torch|contextlib\.py|threading\.py)\b")


def add_sites(connection: sqlite3.Connection, frames: Iterable[Frame]) -> None:
    """Fills the table `call_site`."""
    calls: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row, name, t0, t1, tid in connection.execute("SELECT rowid, name, t0, t1, tid FROM api ORDER BY t0"):
        if _WAITS.fullmatch(name):
            calls[tid].append((t0, t1, row))
    found: dict[int, tuple[int, str]] = {}  # by call: begin and name of the latest frame so far
    for name, t0, t1, tid in frames:
        if ".py(" not in name or _NOT_THE_PROGRAMS.match(name):
            continue
        mine = calls.get(tid, [])
        for at in range(bisect_left(mine, (t0,)), len(mine)):
            begin, end, row = mine[at]
            if begin > t1:
                break
            if end <= t1 and (row not in found or t0 >= found[row][0]):
                found[row] = t0, name
    connection.executemany("INSERT INTO call_site VALUES (?, ?)", [(row, name) for row, (_, name) in found.items()])
