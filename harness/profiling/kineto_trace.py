"""Opens a torch profiler (Kineto) trace: Chrome JSON, plain or gzipped."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from specbench.workloads.json_values import Json

from .chrome_json import ChromeTrace, TraceEvent, us_to_ns
from .record import Source
from .trace_db import Trace, TraceFile, finish_tables, open_tables

# Of `user_annotation` there is a twin on the GPU's rows, `gpu_user_annotation`: a span over its kernels, not a range.
_RANGE = "user_annotation"
_CALLS = ("cuda_runtime", "cuda_driver")
_OPS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}

_COPY_NAME = re.compile(r"Memcpy (\w+) \((.+) -> (.+)\)")
_COPIES = {name: number for number, name in enumerate("? HtoD DtoH HtoA AtoH AtoA AtoD DtoA DtoD HtoH PtoP".split())}
_MEMORIES = {"Pageable": 0, "Pinned": 1, "Device": 2, "Array": 3, "Managed": 4}

_BATCH = 10_000


def open_kineto(path: Path, given: TraceFile) -> Trace:
    """A Kineto trace. ValueError for what is none, is cut short, or lacks what an analysis needs."""
    connection = open_tables(None)
    file = given.name
    trace = ChromeTrace(path, file)
    loader = _Loader(connection, file)
    events = iter(trace)
    while batch := list(itertools.islice(events, _BATCH)):
        loader.add(batch)
    notes = loader.finish()
    header = trace.header
    cupti = header.get("cupti_version")
    devices = header.get("deviceProperties") or []
    source = Source(
        kind="kineto",
        file=file,
        sha256=given.sha256,
        num_bytes=given.num_bytes,
        tool="Kineto" + (f", CUPTI {cupti}" if cupti is not None else ""),
        schema_version=None,
        command=None,
        working_dir=None,
        devices=_devices(connection, devices if isinstance(devices, list) else []),
    )
    return Trace(connection=connection, source=source, notes=notes)


class _Loader:
    """Fills the tables. A Kineto trace is of one process, whose number here is that of its calls."""

    def __init__(self, connection: sqlite3.Connection, file: str):
        self._connection = connection
        self._file = file
        self._names: dict[str, int] = {}
        self._threads: dict[tuple[int | str | None, int | str | None], int] = {}
        self._call_pids: set[int | str | None] = set()

    def add(self, events: list[TraceEvent]) -> None:
        ranges, calls, ops = [], [], []
        for event in events:
            if event.get("ph") != "X":
                continue
            category = event.get("cat")
            if category == _RANGE:
                ranges.append((str(event["name"]), *_times(event), self._thread(event), 0))
            elif category in _CALLS:
                self._call_pids.add(event.get("pid"))
                calls.append((event["name"], *_times(event), self._thread(event), 0, _correlation(event)))
            elif category in _OPS:
                ops.append(self._op(_OPS[category], event))
        self._connection.executemany("INSERT INTO rng VALUES (?,?,?,?,?)", ranges)
        self._connection.executemany("INSERT INTO api VALUES (?,?,?,?,?,?)", calls)
        self._connection.executemany("INSERT INTO op VALUES (?,?,?,?,?,?,?,?,?,?,?)", ops)

    def _op(self, kind: str, event: TraceEvent) -> tuple[Json, ...]:
        args, name = event.get("args") or {}, str(event["name"])
        copy_kind, memory = _copy(name) if kind == "memcpy" else (None, None)
        device, stream = args.get("device", event.get("pid")), args.get("stream", event.get("tid"))
        node = args.get("graph node id") or None
        t0, t1 = _times(event)
        number = self._names.setdefault(name, len(self._names))
        return kind, number, t0, t1, _number(device), _number(stream), _correlation(event), 0, node, copy_kind, memory

    def _thread(self, event: TraceEvent) -> int:
        return self._threads.setdefault((event.get("pid"), event.get("tid")), len(self._threads))

    def finish(self) -> tuple[str, ...]:
        if len(self._call_pids) > 1:
            raise ValueError(
                f"trace: {self._file} holds CUDA calls of {len(self._call_pids)} processes merged into one file, whose "
                "correlation numbers cannot be told apart; give the file of one rank"
            )
        self._check_rows()
        self._connection.executemany("INSERT INTO name VALUES (?, ?)", [(i, name) for name, i in self._names.items()])
        return finish_tables(self._connection)

    def _check_rows(self) -> None:
        num_kernels, num_calls, num_ranges = (
            self._connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            for table in ("op WHERE kind = 'kernel'", "api", "rng")
        )
        if not num_kernels:
            raise ValueError(
                f"trace: {self._file} holds no GPU kernels: profiled on a CPU, or without ProfilerActivity.CUDA; a "
                "profile needs a GPU's trace"
            )
        if not num_calls:
            raise ValueError(
                f"trace: {self._file} holds no CUDA API calls, so nothing says which phase launched an operation; "
                "record with ProfilerActivity.CPU as well"
            )
        if not num_ranges:
            raise ValueError(
                f"trace: {self._file} holds no host ranges (user_annotation), so there are no phases; switch the "
                "program's record_function ranges on (vLLM: VLLM_CUSTOM_SCOPES_FOR_PROFILING=1)"
            )


def _copy(name: str) -> tuple[int | None, int | None]:
    """Kind of a copy and of the memory that it writes, in nsys's numbers."""
    match = _COPY_NAME.match(name)
    return (_COPIES.get(match[1]), _MEMORIES.get(match[3])) if match else (None, None)


def _times(event: TraceEvent) -> tuple[int, int]:
    t0 = us_to_ns(event["ts"])
    return t0, t0 + us_to_ns(event.get("dur", 0))


def _correlation(event: TraceEvent) -> int | None:
    args = event.get("args")
    number = args.get("correlation") if isinstance(args, dict) else None
    return number if isinstance(number, int) and number > 0 else None


def _number(value: Json) -> int:
    try:
        return int(value) if isinstance(value, (int, float, str)) else 0
    except ValueError:
        return 0


def _devices(connection: sqlite3.Connection, properties: Sequence[Json]) -> tuple[str, ...]:
    used = {dev for (dev,) in connection.execute("SELECT DISTINCT dev FROM op")}
    return tuple(str(p["name"]) for p in properties if isinstance(p, dict) and "name" in p and p.get("id") in used)
