"""Traces with known answers, written as nsys sqlite exports (schema 3.20 or 3.25) or as Kineto JSON.

The host and one GPU stream have a clock each: a call takes time on the host, and what it launches begins `LATENCY_NS`
after the call did, or when the stream is free. Times are ns.
"""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

LAUNCH_NS, GRAPH_LAUNCH_NS, LATENCY_NS = 4_000, 9_000, 6_000
STREAM = 7
PAGEABLE, PINNED, DEVICE = 0, 1, 2
DTOH, HTOD = 2, 1

GPU_NAME = "NVIDIA H200"
COMMAND = ("/usr/bin/python3", "-m", "specbench.harness", "--api-key", "hunter2-in-argv")
WORKING_DIR = "/home/alice/work"

_COPY_WORDS = {HTOD: "HtoD", DTOH: "DtoH"}
_MEMORY_WORDS = {PAGEABLE: "Pageable", PINNED: "Pinned", DEVICE: "Device"}


@dataclass(frozen=True, slots=True)
class RangeRow:
    name: str
    t0: int
    t1: int
    tid: int
    is_registered: bool = False


@dataclass(frozen=True, slots=True)
class CallRow:
    name: str  # without a version suffix
    t0: int
    t1: int
    tid: int
    cid: int


@dataclass(frozen=True, slots=True)
class OpRow:
    kind: str
    name: str
    t0: int
    t1: int
    cid: int
    node: int | None = None
    copy_kind: int | None = None
    src: int | None = None
    dst: int | None = None
    stream: int = STREAM


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: int
    orig: int | None
    t0: int
    tid: int


@dataclass
class Synth:
    """Rows of one process, and the clocks."""

    pid: int = 4242
    tid: int = 4242
    host: int = 1_000_000
    gpu: int = 0
    ranges: list[RangeRow] = field(default_factory=list)
    calls: list[CallRow] = field(default_factory=list)
    ops: list[OpRow] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)

    @contextmanager
    def range(self, name: str, is_registered: bool = False) -> Iterator[None]:
        start = self.host
        yield
        self.ranges.append(RangeRow(name, start, self.host, self.tid, is_registered))

    def work(self, ns: int) -> None:
        """The host computes."""
        self.host += ns

    def call(self, name: str, ns: int) -> CallRow:
        row = CallRow(name, self.host, self.host + ns, self.tid, len(self.calls) + 1)
        self.calls.append(row)
        self.host += ns
        return row

    def _run(self, call: CallRow, name: str, ns: int, kind: str = "kernel", **more) -> OpRow:
        start = max(self.gpu, call.t0 + LATENCY_NS)
        self.gpu = start + ns
        row = OpRow(kind, name, start, self.gpu, call.cid, **more)
        self.ops.append(row)
        return row

    def launch(self, name: str, ns: int) -> OpRow:
        return self._run(self.call("cudaLaunchKernel", LAUNCH_NS), name, ns)

    def graph(self, kernels: Sequence[tuple[str, int]], first_node: int = 1000) -> list[OpRow]:
        call = self.call("cudaGraphLaunch", GRAPH_LAUNCH_NS)
        return [self._run(call, name, ns, node=first_node + i) for i, (name, ns) in enumerate(kernels)]

    def copy(self, ns: int = 1_500, kind: int = DTOH, host_memory: int = PINNED, api: str = "cudaMemcpyAsync") -> OpRow:
        src, dst = (DEVICE, host_memory) if kind == DTOH else (host_memory, DEVICE)
        name = f"Memcpy {_COPY_WORDS[kind]} ({_MEMORY_WORDS[src]} -> {_MEMORY_WORDS[dst]})"
        call = self.call(api, 3_000)
        op = self._run(call, name, ns, kind="memcpy", copy_kind=kind, src=src, dst=dst)
        if host_memory == PAGEABLE and kind == DTOH:
            self._lengthen(op.t1)
        return op

    def sync(self, name: str = "cudaStreamSynchronize", extra_ns: int = 2_000) -> None:
        self.call(name, 1_000)
        self._lengthen(self.gpu + extra_ns)

    def _lengthen(self, until: int) -> None:
        """The last call blocks the host until then."""
        self.host = max(self.host, until)
        self.calls[-1] = replace(self.calls[-1], t1=self.host)

    # -- nsys --------------------------------------------------------------------------------------------------------

    @property
    def global_pid(self) -> int:
        return (1 << 48) | (self.pid << 24)


def write_nsys(
    path: Path,
    *processes: Synth,
    schema: str = "3.20.2",
    shuffle: int | None = None,
    by_text_id: bool | None = None,
    without: Sequence[str] = (),
    extra_sql: str = "",
) -> Path:
    """`without`: tables left out. `by_text_id`: names of all ranges as textId, or as text; else as each says."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(_ddl(schema))
    strings: dict[str, int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings) + 1)

    rows = [row for process in processes for row in _nsys_rows(process, text, by_text_id)]
    if shuffle is not None:
        random.Random(shuffle).shuffle(rows)
    for table, values in rows:
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, s) for s, i in strings.items()])
    _metadata(connection, schema)
    connection.executescript(extra_sql)
    present = {table for table, _ in rows}
    for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUDA_GRAPH_NODE_EVENTS", *without):
        if table in without or table not in present:  # tables come with their first row
            connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.commit()
    connection.close()
    return path


def _nsys_rows(process: Synth, text, by_text_id: bool | None) -> Iterator[tuple[str, dict]]:
    pid = process.global_pid
    for r in process.ranges:
        as_id = r.is_registered if by_text_id is None else by_text_id
        name = dict(text=None, textId=text(r.name)) if as_id else dict(text=r.name, textId=None)
        yield "NVTX_EVENTS", dict(start=r.t0, end=r.t1, eventType=59, globalTid=pid | r.tid, domainId=0, **name)
    for c in process.calls:
        yield (
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            dict(
                start=c.t0,
                end=c.t1,
                eventClass=0,
                globalTid=pid | c.tid,
                correlationId=c.cid,
                nameId=text(f"{c.name}_v7000"),
                returnValue=0,
            ),
        )
    for o in process.ops:
        common = dict(
            start=o.t0,
            end=o.t1,
            deviceId=0,
            contextId=1,
            streamId=o.stream,
            correlationId=o.cid,
            globalPid=pid,
            graphNodeId=o.node,
        )
        if o.kind == "kernel":
            yield "CUPTI_ACTIVITY_KIND_KERNEL", dict(common, demangledName=text(o.name), shortName=text(o.name[:8]))
        elif o.kind == "memcpy":
            yield (
                "CUPTI_ACTIVITY_KIND_MEMCPY",
                dict(common, bytes=64, copyKind=o.copy_kind, srcKind=o.src, dstKind=o.dst),
            )
        else:
            yield "CUPTI_ACTIVITY_KIND_MEMSET", dict(common, bytes=64, value=0)
    for n in process.nodes:
        yield (
            "CUDA_GRAPH_NODE_EVENTS",
            dict(
                start=n.t0,
                end=n.t0 + 1,
                eventClass=77,
                globalTid=pid | n.tid,
                nameId=text("Graph Node Creation"),
                graphNodeId=n.node,
                originalGraphNodeId=n.orig,
            ),
        )


_TIMES = "start! end! "
_DEVICE = "deviceId! contextId! streamId! correlationId, globalPid, graphNodeId, "
_TABLES = {
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "TARGET_INFO_GPU": "vmId! id! name TEXT, busLocation TEXT NOT NULL, uuid TEXT, cuDevice",
    "TARGET_INFO_SYSTEM_ENV": "globalVid, name TEXT NOT NULL, nameEnum! value TEXT NOT NULL",
    "ProcessStreams": "globalPid! filenameId! contentId",
    "DIAGNOSTIC_EVENT": "timestamp! timestampType! source! severity! text TEXT NOT NULL, globalPid",
    "NVTX_EVENTS": "start! end, eventType! rangeId, color, text TEXT, globalTid, endGlobalTid, textId, domainId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": _TIMES + "eventClass! globalTid, correlationId, nameId! returnValue! callchainId",
    "CUPTI_ACTIVITY_KIND_KERNEL": _TIMES + _DEVICE + "greenContextId, demangledName! shortName INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": _TIMES + _DEVICE + "bytes! copyKind! srcKind, dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": _TIMES + _DEVICE + "value! bytes INTEGER NOT NULL",
    "CUDA_GRAPH_NODE_EVENTS": _TIMES + "eventClass! globalTid, nameId! graphNodeId! originalGraphNodeId",
}
_NEWER = {
    "NVTX_EVENTS": ", binaryData TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": ", graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": ", graphId",
}


def _ddl(schema: str) -> str:
    """Used columns, and those that must not be NULL ("!"); plain ones are INTEGER. 3.25 has more of them than 3.20."""
    newer = _NEWER if schema.startswith("3.25") else {}
    tables = {name: columns + newer.get(name, "") for name, columns in _TABLES.items()}
    return "".join(f"CREATE TABLE {name}({_columns(text)});" for name, text in tables.items())


def _columns(text: str) -> str:
    words = text.replace("! ", " INTEGER NOT NULL, ").split(", ")
    return ", ".join(word if " " in word else f"{word} INTEGER" for word in words)


def _metadata(connection: sqlite3.Connection, schema: str) -> None:
    exported = [("EXPORT_PRODUCT_VERSION", "2025.3.1.90"), ("EXPORT_SCHEMA_VERSION", schema)]
    connection.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", exported)
    captured = [("PROCESS_0:COMMAND", COMMAND[0]), ("PROCESS_0:WORKING_DIR", WORKING_DIR)]
    captured += [(f"PROCESS_0:ARGUMENT_{i}", word) for i, word in enumerate(COMMAND[1:])]
    connection.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", captured)
    connection.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, ?, '0000:01:00.0', 'GPU-1234', 0)", (GPU_NAME,))


# -- Kineto ------------------------------------------------------------------------------------------------------------


def write_kineto(path: Path, process: Synth, shuffle: int | None = None, header: dict | None = None) -> Path:
    """Chrome JSON as torch's profiler writes it, gzipped where the name ends in .gz; times in us with three digits."""
    events = list(_kineto_events(process))
    if shuffle is not None:
        random.Random(shuffle).shuffle(events)
    top = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": GPU_NAME}], "cupti_version": 26, **(header or {})}
    body = json.dumps({**top, "traceEvents": []})
    # Times as the tool writes them: a float would round them.
    text = body.replace('"traceEvents": []', '"traceEvents": [' + ",\n".join(events) + "]")
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def _kineto_events(process: Synth) -> Iterator[str]:
    host = dict(pid=process.pid)
    for r in process.ranges:
        yield _event("user_annotation", r.name, r.t0, r.t1, **host, tid=r.tid, args={"External id": 1})
        yield _event("gpu_user_annotation", r.name, r.t0 + 5, r.t1 + 9, pid=0, tid=STREAM, args={"External id": 1})
    for c in process.calls:
        category = "cuda_driver" if c.name.startswith("cuL") else "cuda_runtime"
        yield _event(category, c.name, c.t0, c.t1, **host, tid=c.tid, args={"cbid": 211, "correlation": c.cid})
    for o in process.ops:
        args = {"device": 0, "stream": o.stream, "correlation": o.cid, "graph node id": o.node or 0}
        category = "kernel" if o.kind == "kernel" else f"gpu_{o.kind}"
        yield _event(category, o.name, o.t0, o.t1, pid=0, tid=o.stream, args=args)
    yield json.dumps(
        {"ph": "M", "name": "process_name", "ts": 0, "pid": process.pid, "tid": 0, "args": {"name": "python3"}}
    )


def _event(category: str, name: str, t0: int, t1: int, **more) -> str:
    fields = json.dumps(dict(ph="X", cat=category, name=name, **more))
    return f'{fields[:-1]}, "ts": {_us(t0)}, "dur": {_us(t1 - t0)}}}'


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


# -- a trace with known answers ----------------------------------------------------------------------------------------

VERIFY_KERNELS = [("flash_fwd_splitkv_kernel", 20_000), ("gemm", 30_000)] * 10
DRAFT_KERNELS = [("flash_fwd_kernel", 5_000), ("gemm", 5_000)] * 3
FIRST_STEP = 10


def spec_trace(num_rounds: int = 3, num_drafts: int = 3) -> Synth:
    """Rounds of 616 us, told by `test_analysis.py`: verify in a graph, the first drafter pass eager, the others in
    graphs; a pinned copy outside any phase, one blocking read (copy and synchronise), and one wait behind the step."""
    s = Synth()
    for number in range(num_rounds):
        with s.range(f"specbench:step {FIRST_STEP + number}"):
            with s.range("specbench:advance", is_registered=True):
                s.launch("advance", 1_500)
            with s.range("specbench:verify"):
                s.graph(VERIFY_KERNELS)
            with s.range("specbench:accept"):
                s.launch("accept", 3_000)
            s.copy()
            with s.range("specbench:draft_ids"):
                s.copy(host_memory=PAGEABLE)
                s.sync()
            with s.range("specbench:draft_first"):
                for name, ns in DRAFT_KERNELS:
                    s.launch(name, ns)
            for _ in range(num_drafts - 1):
                with s.range("specbench:draft_next"):
                    s.graph(DRAFT_KERNELS, first_node=2000)
        with s.range("specbench:status"):
            s.sync("cudaEventSynchronize")
    return s
