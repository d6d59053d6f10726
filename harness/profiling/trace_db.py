"""A trace as tables of one process, ready to be analysed: what nsys_trace.py and kineto_trace.py fill in.

Times are int64 ns. -1 means "none" in numeric columns. Rows are sorted by all columns, so nothing depends on their
order in a file.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import pandas as pd

from specbench.workloads.guarded import ANY_SIZE, GZIP, open_file

from .chrome_json import MAX_NS
from .record import Source

NSYS, KINETO = "nsys", "kineto"  # kinds of trace

KERNEL, MEMCPY, GRAPH = "kernel", "memcpy", "graph"  # graph: a replay that was not traced by node


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A call of the CUDA runtime or driver; `name` has no version suffix."""

    id: int
    name: str
    t0: int
    t1: int
    site: str = ""  # file, line and function that made it; where the trace has stacks


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """An open trace. `notes`: what the file itself says about missing data."""

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

    def _frame(self, sql: str, **types: str) -> pd.DataFrame:
        """Columns are int64 unless `types` says otherwise."""
        frame = pd.read_sql_query(sql, self._connection, params=(self.pid,))
        return frame.astype({name: types.get(name, "int64") for name in frame})

    def ranges(self) -> Iterable[tuple[str, int, int, int]]:
        """Host ranges: name, t0, t1, tid."""
        return self._connection.execute(
            "SELECT name, t0, t1, tid FROM rng WHERE pid = ? ORDER BY t0, t1 DESC, name, tid", (self.pid,)
        )

    @cached_property
    def ops(self) -> pd.DataFrame:
        """Operations in time order: kind, name, t0, t1, dev, stream, node, launch (id of the row in `launches`).

        The name of a copy says where from and to: `Memcpy DtoH (Device -> Pageable)`.
        """
        sql = (
            "SELECT o.kind, o.name_id AS name, o.t0, o.t1, o.dev, o.stream, COALESCE(o.node, -1) AS node,"
            " COALESCE(l.id, -1) AS launch FROM op o LEFT JOIN launch l ON l.pid = o.pid AND l.cid = o.cid"
            " WHERE o.pid = ?"
        )
        frame = self._frame(sql, kind="category")
        names = dict(self._connection.execute("SELECT id, value FROM name").fetchall())
        frame["name"] = frame["name"].map(names).fillna("?").astype("category")
        order = ["dev", "t0", "t1", "stream", "node", "name", "launch"]
        return frame.sort_values(order, ignore_index=True)

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Calls that left work on a GPU: t0, t1, tid, via_graph; by id."""
        sql = "SELECT id, t0, t1, tid, name GLOB 'cu*GraphLaunch*' AS via_graph FROM launch WHERE pid = ? ORDER BY id"
        return self._frame(sql, via_graph="bool").set_index("id")

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """Graph nodes as they were created: node, orig, t0, tid."""
        return self._frame("SELECT node, COALESCE(orig, -1) AS orig, t0, tid FROM node WHERE pid = ? ORDER BY node, t0")

    def calls(self, tid: int) -> list[ApiCall]:
        """All calls of one thread in time order, except those made by another call."""
        rows = self._connection.execute(
            "SELECT a.rowid, a.name, a.t0, a.t1, COALESCE(s.site, '') FROM api a"
            " LEFT JOIN call_site s ON s.id = a.rowid WHERE a.pid = ? AND a.tid = ? ORDER BY a.t0, a.t1 DESC",
            (self.pid, tid),
        )
        outer, end = [], -math.inf
        for row, name, t0, t1, site in rows:
            if t1 > end:
                outer.append(ApiCall(row, _without_version(name), t0, t1, site))
                end = t1
        return outer


@lru_cache(maxsize=4096)
def _without_version(name: str) -> str:
    return re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)


def trace_kind(path: Path) -> str | None:
    """From the file's first bytes: NSYS (sqlite) or KINETO (JSON, plain or gzipped); None for anything else."""
    with open_file(path, ANY_SIZE) as stream:
        head = stream.read(256)
    if head.startswith(b"SQLite format 3\x00"):
        return NSYS
    return KINETO if head.startswith(GZIP) or head.lstrip()[:1] in (b"{", b"[") else None


def open_tables(path: Path | None) -> sqlite3.Connection:
    """A connection with the empty tables of trace_tables.sql: over the file at `path`, which is never written to, or
    over nothing."""
    connection = (
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True) if path else sqlite3.connect(":memory:")
    )
    connection.text_factory = lru_cache(maxsize=4096)(_text)  # a trace repeats a few names in each of its rows
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.executescript(_sql("trace_tables.sql"))
    return connection


def _text(stored: bytes) -> str:
    """Names of kernels and ranges are whatever bytes a program gave them."""
    return stored.decode(errors="replace")


def finish_tables(connection: sqlite3.Connection, file: str, missing: Mapping[str, str]) -> tuple[str, ...]:
    """Joins operations to calls. Some tools give replayed nodes no correlation; these are assigned to the replay called
    last before they began.

    Leaves out records that end before they begin: they say nothing, and would be subtracted from sums. Returns a note
    if either was done. ValueError if a table that an analysis needs is empty; `missing`: tables, and the advice about
    `file` then.
    """
    tables = ("op", "api", "rng")
    for table in tables:
        if connection.execute(
            f"SELECT 1 FROM {table} WHERE MIN(t0, t1) <= {-MAX_NS} OR MAX(t0, t1) >= {MAX_NS} LIMIT 1"
        ).fetchone():
            raise ValueError(f"trace: {file} has times beyond {MAX_NS} ns, which are impossible; export it again")
    num_reversed = sum(connection.execute(f"DELETE FROM {table} WHERE t1 < t0").rowcount for table in tables)
    for table, advice in missing.items():
        if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is None:
            raise ValueError(f"trace: {file} holds {advice}")
    connection.executescript(_sql("trace_joins.sql"))
    guessed = connection.execute(
        "UPDATE op SET cid = (SELECT g.cid FROM graph_call g WHERE g.pid = op.pid AND g.t0 <= op.t0"
        " ORDER BY g.t0 DESC LIMIT 1) WHERE node IS NOT NULL AND COALESCE(cid, 0) <= 0"
    ).rowcount
    connection.executescript(_sql("trace_launches.sql"))
    notes = {
        "operations of graphs carry no correlation number; given to the replay last called before each": guessed,
        "records of the trace end before they begin and are left out": num_reversed,
    }
    return tuple(f"{number} {note}" for note, number in notes.items() if number)


def _sql(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
