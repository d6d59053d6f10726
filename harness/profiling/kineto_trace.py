"""Opens a torch profiler (Kineto) trace: Chrome JSON, plain or gzipped."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

from specbench.workloads.json_values import Json

from .chrome_json import ChromeTrace, TraceEvent, us_to_ns
from .record import Source
from .trace_db import KERNEL, MEMCPY, Trace, finish_tables, open_tables

# Each `user_annotation` has a twin on the GPU's rows, `gpu_user_annotation`: a span over its kernels, not a range.
_RANGE = "user_annotation"
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
    """`given`: what is known about the file. ValueError if it is not a Kineto trace, is cut short, or lacks what an
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


def _fill(connection: sqlite3.Connection, trace: ChromeTrace, file: str) -> None:
    """Inserts the events into the tables. A Kineto trace covers one process, which has the number 0 here."""
    names: dict[str, int] = {}
    threads: dict[tuple[Json, Json], int] = {}
    call_pids = set()
    for event in trace:
        category = event.get("cat", "")
        if event.get("ph") != "X" or category not in (_RANGE, *_CALLS, *_OPS):
            continue
        name, t0 = str(event["name"]), us_to_ns(event["ts"])
        t1 = t0 + us_to_ns(event.get("dur", 0))
        if category in _OPS:
            args = event.get("args") or {}
            device, stream = args.get("device", event.get("pid")), args.get("stream", event.get("tid"))
            numbers = (_number(device), _number(stream), _correlation(event), 0, args.get("graph node id") or None)
            row = (_OPS[category], names.setdefault(name, len(names)), t0, t1, *numbers)
            connection.execute("INSERT INTO op VALUES (?,?,?,?,?,?,?,?,?)", row)
            continue
        thread = threads.setdefault((event.get("pid"), event.get("tid")), len(threads))
        if category == _RANGE:
            connection.execute("INSERT INTO rng VALUES (?,?,?,?,0)", (name, t0, t1, thread))
        else:
            call_pids.add(event.get("pid"))
            connection.execute("INSERT INTO api VALUES (?,?,?,?,0,?)", (name, t0, t1, thread, _correlation(event)))
    connection.executemany("INSERT INTO name VALUES (?, ?)", [(number, name) for name, number in names.items()])
    if len(call_pids) > 1:
        raise ValueError(
            f"trace: {file} holds CUDA calls of {len(call_pids)} processes merged into one file, whose correlation "
            "numbers cannot be told apart; give the file of one rank"
        )


def _correlation(event: TraceEvent) -> int | None:
    args = event.get("args")
    number = args.get("correlation") if isinstance(args, dict) else None
    return number if isinstance(number, int) and number > 0 else None


def _number(value: Json) -> int:
    return int(str(value)) if str(value).lstrip("-").isdecimal() else 0


def _devices(connection: sqlite3.Connection, properties: Json) -> tuple[str, ...]:
    used = {dev for (dev,) in connection.execute("SELECT DISTINCT dev FROM op")}
    known = properties if isinstance(properties, list) else []
    return tuple(str(p["name"]) for p in known if isinstance(p, dict) and "name" in p and p.get("id") in used)
