"""Opens a torch profiler (Kineto) trace: Chrome JSON, plain or gzipped."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from specbench.workloads.json_values import Json

from .call_sites import FRAME, Frame, add_sites
from .chrome_json import ChromeTrace, TraceEvent, us_to_ns
from .record import Source
from .trace_db import KERNEL, MEMCPY, Trace, finish_tables, open_tables

# Each `user_annotation` has a twin on the GPU's rows, `gpu_user_annotation`: a span over its kernels, not a range.
_RANGE = "user_annotation"
_OPERATOR = "cpu_op"
_CALLS = ("cuda_runtime", "cuda_driver")
_OPS = {"kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": "memset"}
_MISSING = {
    "op WHERE kind = 'kernel'": "no GPU kernels: profiled on a CPU, or without ProfilerActivity.CUDA; a profile needs "
    "a GPU's trace",
    "api": "no CUDA API calls, so nothing says which phase launched an operation; record with ProfilerActivity.CPU as "
    "well",
    "rng": "no host ranges (user_annotation), so there are no phases; switch the program's record_function ranges on "
    "(vLLM: VLLM_CUSTOM_SCOPES_FOR_PROFILING=1)",
}


def open_kineto(path: Path, given: Source) -> Trace:
    """`given`: what is known about the file. ValueError if it is not a Kineto trace, is truncated, or lacks what an
    analysis needs."""
    connection = open_tables(None)
    trace = ChromeTrace(path, given.file)
    _fill(connection, trace, given.file)
    notes = finish_tables(connection, given.file, _MISSING)
    cupti = trace.header.get("cupti_version")
    source = replace(
        given,
        tool="Kineto" + (f", CUPTI {cupti}" if cupti is not None else ""),
        devices=_devices(connection, trace.header.get("deviceProperties")),
    )
    return Trace(connection=connection, source=source, notes=notes)


def open_host(path: Path, given: Source) -> Trace:
    """A trace of a program that has no GPU: its ranges, and torch's operators in the table `cpu_op`. ValueError as
    above."""
    connection = open_tables(None)
    connection.execute("CREATE TEMP TABLE cpu_op(name TEXT NOT NULL, t0 INTEGER NOT NULL, t1 INTEGER NOT NULL)")
    for event in ChromeTrace(path, given.file):
        category = event.get("cat", "")
        if event.get("ph") != "X" or category not in (_RANGE, _OPERATOR):
            continue
        name, t0, t1 = _named_times(event, given.file)
        if category == _OPERATOR:
            connection.execute("INSERT INTO cpu_op VALUES (?,?,?)", (name, t0, t1))
        else:
            connection.execute("INSERT INTO rng VALUES (?,?,?,?,0)", (name, t0, t1, _number(event.get("tid"))))
    notes = finish_tables(connection, given.file, {"rng": _MISSING["rng"]})
    return Trace(connection=connection, source=replace(given, tool="Kineto"), notes=notes)


def _fill(connection: sqlite3.Connection, trace: ChromeTrace, file: str) -> None:
    """Inserts the events into the tables. A Kineto trace covers one process, which has the number 0 here."""
    names: dict[str, int] = {}
    threads: dict[tuple[str, str], int] = {}
    call_pids = set()
    frames: list[Frame] = []
    for event in trace:
        category = event.get("cat", "")
        if category == FRAME and event.get("ph") == "X" and ".py(" in str(event.get("name")):
            thread = threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(threads))
            frames.append((*_named_times(event, file), thread))
            continue
        if event.get("ph") != "X" or category not in (_RANGE, *_CALLS, *_OPS):
            continue
        name, t0, t1 = _named_times(event, file)
        if category in _OPS:
            args = _args(event)
            device, stream = args.get("device", event.get("pid")), args.get("stream", event.get("tid"))
            numbers = (_number(device), _number(stream), _correlation(event), 0, _positive(args.get("graph node id")))
            row = (_OPS[category], names.setdefault(name, len(names)), t0, t1, *numbers)
            connection.execute("INSERT INTO op VALUES (?,?,?,?,?,?,?,?,?)", row)
            continue
        pid = str(event.get("pid"))
        thread = threads.setdefault((pid, str(event.get("tid"))), len(threads))
        if category == _RANGE:
            connection.execute("INSERT INTO rng VALUES (?,?,?,?,0)", (name, t0, t1, thread))
        else:
            call_pids.add(pid)
            connection.execute("INSERT INTO api VALUES (?,?,?,?,0,?)", (name, t0, t1, thread, _correlation(event)))
    connection.executemany("INSERT INTO name VALUES (?, ?)", [(number, name) for name, number in names.items()])
    add_sites(connection, frames)
    if len(call_pids) > 1:
        raise ValueError(
            f"trace: {file} holds CUDA calls of {len(call_pids)} processes merged into one file, whose correlation "
            "numbers cannot be told apart; give the file of one rank"
        )


def _named_times(event: TraceEvent, file: str) -> tuple[str, int, int]:
    """Name, start and end of an event; ValueError if one is missing."""
    name = event.get("name")
    try:
        t0, duration = us_to_ns(event["ts"]), us_to_ns(event.get("dur", 0))
    except (KeyError, ValueError) as error:
        reason = "it has no ts" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"trace: {file} has an event {name!r:.60} without times ({reason}); export it again"
        ) from error
    if not isinstance(name, str):
        raise ValueError(f"trace: {file} has an event whose name is {name!r:.60}; allowed: text; export it again")
    return name, t0, t0 + duration


def _args(event: TraceEvent) -> Mapping[str, Json]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _correlation(event: TraceEvent) -> int | None:
    return _positive(_args(event).get("correlation"))


def _positive(value: Json) -> int | None:
    """None for anything that sqlite cannot store as a number above 0."""
    return value if type(value) is int and 0 < value < 1 << 63 else None


def _number(value: Json) -> int:
    return int(str(value)) if re.fullmatch(r"-?[0-9]{1,18}", str(value)) else 0


def _devices(connection: sqlite3.Connection, properties: Json) -> tuple[str, ...]:
    used = {dev for (dev,) in connection.execute("SELECT DISTINCT dev FROM op")}
    known = [p for p in properties if isinstance(p, dict)] if isinstance(properties, list) else []
    return tuple(str(p["name"]) for p in known if "name" in p and isinstance(p.get("id"), int) and p["id"] in used)
