"""A trace as tables of one process, ready to be analysed: what nsys_trace.py and kineto_trace.py fill in.

Times are int64 ns. -1 stands for "none" in numeric columns. Names are numbers into `names`, which is sorted, so that
nothing depends on the order of rows in a file.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .record import Source

MAGIC = b"SQLite format 3\x00"

DEVICE_TO_HOST, DEVICE_TO_DEVICE, PAGEABLE = 2, 8, 0  # nsys's numbers of copy and memory kinds

KINDS = ("kernel", "memcpy", "memset", "graph")
KERNEL, MEMCPY, MEMSET, GRAPH = range(4)

_OP = [("kind", "i1"), ("name", "i8"), ("t0", "i8"), ("t1", "i8"), ("dev", "i4"), ("stream", "i8"), ("node", "i8")]
_OP += [("copy_kind", "i2"), ("dst_kind", "i2"), ("launch", "i8")]
_CALL = [("id", "i8"), ("t0", "i8"), ("t1", "i8"), ("tid", "i8"), ("via_graph", "?")]
_NODE = [("node", "i8"), ("orig", "i8"), ("t0", "i8"), ("tid", "i8")]


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceFile:
    """The file that a user gave; what is opened may be an export of it."""

    name: str
    sha256: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Range:
    """A host range."""

    name: str
    t0: int
    t1: int
    tid: int


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A call of the CUDA runtime or driver; `name` without its version suffix."""

    id: int
    name: str
    t0: int
    t1: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """An open trace. `notes`: what the file itself says about its gaps."""

    connection: sqlite3.Connection
    source: Source
    notes: tuple[str, ...]

    def range_names(self) -> Counter[str]:
        return Counter(dict(self.connection.execute("SELECT name, COUNT(*) FROM rng GROUP BY name")))

    def processes(self) -> Mapping[int, int]:
        """GPU time in ns by process, of processes that have host ranges."""
        rows = self.connection.execute(
            "SELECT pid, SUM(t1 - t0) FROM op WHERE pid IN (SELECT pid FROM rng) GROUP BY pid ORDER BY pid"
        )
        return dict(rows.fetchall())

    def of_process(self, pid: int) -> ProcessTrace:
        return ProcessTrace(self.connection, pid, self.source.file)


class ProcessTrace:
    """The rows of one process."""

    def __init__(self, connection: sqlite3.Connection, pid: int, file: str):
        self._connection = connection
        self.pid = pid
        self.file = file

    @cached_property
    def ranges(self) -> Sequence[Range]:
        rows = self._connection.execute(
            "SELECT name, t0, t1, tid FROM rng WHERE pid = ? ORDER BY t0, t1 DESC, name, tid", (self.pid,)
        )
        return [Range(*row) for row in rows]

    @cached_property
    def names(self) -> NDArray[np.object_]:
        """Names of operations, sorted; `ops["name"]` counts into them."""
        rows = self._connection.execute("SELECT DISTINCT value FROM name ORDER BY value")
        return np.array([value for (value,) in rows], dtype=object)

    @cached_property
    def ops(self) -> NDArray[np.void]:
        """Operations in time order: kind, name, t0, t1, dev, stream, node, copy_kind, dst_kind, launch (number of the
        row in `launches`)."""
        rows = self._connection.execute(
            "SELECT CASE o.kind WHEN 'kernel' THEN 0 WHEN 'memcpy' THEN 1 WHEN 'memset' THEN 2 ELSE 3 END, o.name_id,"
            " o.t0, o.t1, o.dev, o.stream, COALESCE(o.node, -1), COALESCE(o.copy_kind, -1), COALESCE(o.dst_kind, -1),"
            " COALESCE(l.id, -1) FROM op o LEFT JOIN launch l ON l.pid = o.pid AND l.cid = o.cid WHERE o.pid = ?",
            (self.pid,),
        )
        ops = np.fromiter(rows, dtype=_OP)
        ops["name"] = self._sorted_names(ops["name"])
        ids = self.launches["id"]
        known = ops["launch"] >= 0
        ops["launch"][known] = np.searchsorted(ids, ops["launch"][known])
        order = np.lexsort([ops[key] for key in ("launch", "name", "node", "stream", "t1", "t0", "dev")])
        return ops[order]

    def _sorted_names(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        position = {value: index for index, value in enumerate(self.names)}
        found = {key: position[value] for key, value in self._connection.execute("SELECT id, value FROM name")}
        unique, inverse = np.unique(ids, return_inverse=True)
        return np.array([found[int(key)] for key in unique], dtype=np.int64)[inverse]

    @cached_property
    def launches(self) -> NDArray[np.void]:
        """Calls that left work on a GPU: id, t0, t1, tid, via_graph; by id."""
        rows = self._connection.execute(
            "SELECT id, t0, t1, tid, name GLOB 'cu*GraphLaunch*' FROM launch WHERE pid = ? ORDER BY id", (self.pid,)
        )
        return _filled(rows, _CALL)

    @cached_property
    def nodes(self) -> NDArray[np.void]:
        """Graph nodes as they were made: node, orig, t0, tid."""
        rows = self._connection.execute(
            "SELECT node, COALESCE(orig, -1), t0, tid FROM node WHERE pid = ? ORDER BY node, t0", (self.pid,)
        )
        return _filled(rows, _NODE)

    def calls(self, tid: int) -> list[ApiCall]:
        """All calls of one thread in time order, those made by another call left out."""
        rows = self._connection.execute(
            "SELECT rowid, name, t0, t1 FROM api WHERE pid = ? AND tid = ? ORDER BY t0, t1 DESC", (self.pid, tid)
        )
        outer, end = [], -math.inf
        plain: dict[str, str] = {}
        for row, name, t0, t1 in rows:
            if t1 > end:
                outer.append(ApiCall(row, plain.setdefault(name, _plain(name)), t0, t1))
                end = t1
        return outer


def open_tables(path: Path | None) -> sqlite3.Connection:
    """A connection with the empty tables of trace_tables.sql: over the file at `path`, which is only ever read, or over
    nothing."""
    connection = (
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True) if path else sqlite3.connect(":memory:")
    )
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.executescript(_sql("trace_tables.sql"))
    return connection


def finish_tables(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Joins operations to calls. Some tools give replayed nodes no correlation: those go to the replay last called
    before they began. Returns a note where that was done."""
    connection.executescript(_sql("trace_joins.sql"))
    guessed = connection.execute(
        "UPDATE op SET cid = (SELECT g.cid FROM graph_call g WHERE g.pid = op.pid AND g.t0 <= op.t0"
        " ORDER BY g.t0 DESC LIMIT 1) WHERE node IS NOT NULL AND COALESCE(cid, 0) <= 0"
    ).rowcount
    connection.executescript(_sql("trace_launches.sql"))
    if not guessed:
        return ()
    return (f"{guessed} operations of graphs carry no correlation number; given to the replay last called before each",)


def _sql(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _filled(rows: sqlite3.Cursor, dtype: DTypeLike) -> NDArray[np.void]:
    return np.fromiter(rows, dtype=dtype)


_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds)+$")


def _plain(name: str) -> str:
    return _SUFFIX.sub("", name)
