"""Run directories of `specbench profile run` cut down to what the analysis reads: `python trim.py NSYS_RUN TORCH_RUN`;
of another engine: `python trim.py ENGINE NAME=TRACE.sqlite NAME=TRACE.json.gz ...`, into ENGINE/ under these names.

Paths, process numbers and whatever else tells of the machine go; events, names and times stay to the last digit.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from specbench.harness.profiling.chrome_json import ChromeTrace, TraceEvent
from specbench.harness.profiling.redact import redact

HERE = Path(__file__).parent
READ = {
    *("StringIds", "META_DATA_EXPORT", "META_DATA_CAPTURE", "NVTX_EVENTS", "CUDA_GRAPH_NODE_EVENTS"),
    *("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"),
    *("TARGET_INFO_GPU", "DIAGNOSTIC_EVENT"),
}
PAIRS = "EXPORT_PRODUCT_VERSION|EXPORT_SCHEMA_VERSION|PROCESS_0:(COMMAND|ARGUMENT_\\d+|WORKING_DIR)"
CATEGORIES = ("user_annotation", "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset")
OWN_PID = 1 << 24


def main(nsys_run: Path, torch_run: Path) -> None:
    for run in (nsys_run, torch_run):
        for arm in sorted((run / "profile").iterdir()):
            report = json.loads((arm / "engine.json").read_text())
            target = HERE / report["subject"]["strategy"]
            target.mkdir(exist_ok=True)
            _write_json(target / "engine.json", {"subject": report["subject"]})
            _write_json(target / "nodes.json", json.loads((arm / "nodes.json").read_text()))
            if run is nsys_run:
                _trim_nsys(arm / "trace.sqlite", target / "trace.sqlite.xz")
            else:
                _trim_kineto(arm / "trace.json.gz", target / "trace.json.gz")


def other_engine(engine: str, traces: Sequence[str]) -> None:
    (HERE / engine).mkdir(exist_ok=True)
    for name, _, trace in (each.partition("=") for each in traces):
        if trace.endswith(".sqlite"):
            _trim_nsys(Path(trace), HERE / engine / f"{name}.sqlite.xz")
        else:
            _trim_kineto(Path(trace), HERE / engine / f"{name}.json.gz")


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


def _trim_nsys(source: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "trace.sqlite"
        redact(source, work)
        with closing(sqlite3.connect(work)) as copy:
            copy.execute("PRAGMA secure_delete = ON")
            _cut(copy)
            copy.commit()
            copy.execute("VACUUM")
        target.write_bytes(lzma.compress(work.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


def _cut(copy: sqlite3.Connection) -> None:
    for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        if name not in READ:
            copy.execute(f'DROP TABLE "{name}"')
    for table in ("META_DATA_EXPORT", "META_DATA_CAPTURE"):
        for row, name, value in copy.execute(f"SELECT rowid, name, value FROM {table}").fetchall():
            if re.fullmatch(PAIRS, name):
                copy.execute(f"UPDATE {table} SET value = ? WHERE rowid = ?", (_plain(value), row))
            else:
                copy.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
    copy.execute("DELETE FROM DIAGNOSTIC_EVENT WHERE severity < 2")
    # Creations of the nodes that ran, and of those they were cloned from.
    copy.execute(
        "WITH RECURSIVE kept(node) AS (SELECT graphNodeId FROM CUPTI_ACTIVITY_KIND_KERNEL UNION"
        " SELECT originalGraphNodeId FROM CUDA_GRAPH_NODE_EVENTS JOIN kept ON graphNodeId = node)"
        " DELETE FROM CUDA_GRAPH_NODE_EVENTS WHERE graphNodeId NOT IN (SELECT node FROM kept WHERE node IS NOT NULL)"
    )
    copy.execute(
        "DELETE FROM StringIds WHERE id NOT IN (SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME UNION"
        " SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL UNION"
        " SELECT textId FROM NVTX_EVENTS WHERE textId NOT NULL)"
    )
    _renumber(copy)


def _renumber(copy: sqlite3.Connection) -> None:
    """Processes and threads by small numbers, a thread still its process's number and something."""
    tables = {name: [row[1] for row in copy.execute(f"PRAGMA table_info({name})")] for name in READ}
    threads: dict[int, int] = {}
    for table, columns in tables.items():
        for column in {"globalTid", "globalPid", "endGlobalTid"} & set(columns):
            for row, number in copy.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                if number is not None and column != "globalPid":
                    number = OWN_PID | threads.setdefault(number, len(threads) + 1)
                elif number is not None:
                    number = OWN_PID
                copy.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (number, row))


def _plain(value: str) -> str:
    value = re.sub(r"^/.*/(python3?)$", r"\1", value)
    return "specbench" if re.fullmatch(r"(/\w+)+", value) else re.sub(r"^/.*/(runs/)", r"\1", value)


def _trim_kineto(source: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "trace.json"
        redact(source, work)
        trace = ChromeTrace(work, work.name)
        kept = [(event, text) for event, text in trace.with_text() if _is_read(event)]
        processes = {event["pid"] for event, _ in kept if event["cat"] in (*CATEGORIES[:3], "cpu_op")}
        own = re.compile(rf'("[pt]id": )({"|".join(map(str, processes))})\b')
        lines = [re.sub(r"\n\s*", " ", own.sub(r"\g<1>1", text)) for _, text in kept]
        header = json.dumps(trace.header)[:-1]
    text = f'{header}, "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _is_read(event: TraceEvent) -> bool:
    """Of a trace without a GPU, ranges and operators of attention."""
    is_attention = event.get("cat") == "cpu_op" and "att" in event["name"] and not event["name"].startswith("aten::")
    return event.get("cat") in CATEGORIES or is_attention


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    main(Path(first), Path(rest[0])) if Path(first).is_dir() else other_engine(first, rest)
