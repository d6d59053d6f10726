"""Opens an nsys trace: its sqlite export, or a report that is exported first."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from specbench.harness.store.masking import masked

from .record import Source
from .trace_db import Trace, finish_tables, open_tables

SCHEMA_MAJOR = "3"

# CUPTI's words, as in the names that Kineto gives to copies.
_COPIES = ("?", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_MEMORIES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")

_MISSING = {
    "op WHERE kind IN ('kernel', 'graph')": "no GPU kernels; was the capture range open while the GPU worked, and CUDA "
    "traced (`nsys profile -t cuda,nvtx`)?",
    "api": "no CUDA API calls, so nothing says which phase launched an operation; record with `nsys profile -t "
    "cuda,nvtx`",
    "rng": "no NVTX ranges, so there are no phases; record with `nsys profile -t cuda,nvtx`, and switch the program's "
    "ranges on (vLLM: VLLM_NVTX_SCOPES_FOR_PROFILING=1; SGLang: SGLANG_ENABLE_NVTX_OPERATIONS=1)",
}


def export_report(report: Path, directory: Path) -> Path:
    """`nsys export` of a .nsys-rep file into `directory`. ValueError if nsys is missing or fails."""
    nsys = shutil.which("nsys")
    command = ["export", "--type", "sqlite", "--lazy=false", "--force-overwrite=true"]
    if nsys is None:
        raise ValueError(
            f"trace: {report.name} is an nsys report, and nsys is not on the PATH to export it; install Nsight Systems,"
            f" or run `nsys {' '.join(command)} -o trace.sqlite {report.name}` where it is and give that file"
        )
    target = directory / f"{report.stem}.sqlite"
    done = subprocess.run([nsys, *command, "-o", str(target), str(report)], capture_output=True, text=True)
    if done.returncode or not target.exists():
        message = (done.stderr.strip() or done.stdout.strip() or "it said nothing")[-800:]
        raise ValueError(f"trace: nsys could not export {report.name} (exit code {done.returncode}): {message}")
    return target


def open_nsys(path: Path, given: Source) -> Trace:
    """An nsys sqlite export: of the file that `given` describes, or that file.

    ValueError for a database that is not an export, is truncated, has another schema or lacks what an analysis needs.
    """
    file = given.file
    try:
        connection = open_tables(path)
        tables = _tables(connection)
        exported = _pairs(connection, tables, "META_DATA_EXPORT")
        _check_schema(file, tables, exported)
        connection.executescript(_script(connection, tables))
        _name_copies(connection)
        joined = finish_tables(connection, file, _MISSING)
        captured = _pairs(connection, tables, "META_DATA_CAPTURE")
        devices = _devices(connection, tables)
        notes = (*_diagnostics(connection, tables), *joined)
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"trace: {file} cannot be read as an nsys sqlite export ({error}); it may be cut short: copy or export it "
            "again"
        ) from error
    version = exported.get("EXPORT_PRODUCT_VERSION")
    folder = captured.get("PROCESS_0:WORKING_DIR", captured.get("WORKING_DIR"))
    source = replace(
        given,
        tool=f"nsys {version}" if version else None,
        schema_version=exported.get("EXPORT_SCHEMA_VERSION"),
        command=_command(captured),
        working_dir=None if folder is None else masked((folder,))[0],
        devices=devices,
    )
    return Trace(connection=connection, source=source, notes=notes)


def _tables(connection: sqlite3.Connection) -> dict[str, str]:
    """Tables by their names without the suffixes _V2, _V3 of newer exports, the newest of each."""
    names = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    return {re.sub(r"_V\d+$", "", name): name for name in sorted(names, key=lambda n: (len(n), n))}


def _pairs(connection: sqlite3.Connection, tables: Mapping[str, str], table: str) -> dict[str, str]:
    """A table of names and values, both as text, which sqlite does not promise; if a name occurs twice, the first."""
    if table not in tables:
        return {}
    rows = connection.execute(
        f"SELECT CAST(name AS TEXT), CAST(value AS TEXT) FROM {tables[table]} ORDER BY rowid DESC"
    )
    return {name: value for name, value in rows if name is not None and value is not None}


def _check_schema(file: str, tables: Mapping[str, str], exported: Mapping[str, str]) -> None:
    if "META_DATA_EXPORT" not in tables or "StringIds" not in tables:
        raise ValueError(
            f"trace: {file} is a sqlite database, but not an nsys export (it has no META_DATA_EXPORT and StringIds); "
            "give the output of `nsys export --type sqlite`, or a torch profiler trace"
        )
    version = exported.get("EXPORT_SCHEMA_VERSION", "unknown")
    if version.split(".")[0] != SCHEMA_MAJOR:
        raise ValueError(
            f"trace: {file} has export schema {version}; allowed: {SCHEMA_MAJOR}.x (nsys 2023 to 2026); export the "
            "report again with such an nsys"
        )


def _script(connection: sqlite3.Connection, tables: Mapping[str, str]) -> str:
    """nsys.sql for the tables and columns that this file has."""
    text = Path(__file__).with_name("nsys.sql").read_text(encoding="utf-8")
    text = re.sub(r"--@if (\w+)\n(.*?)--@endif\n", lambda m: m[2] if m[1] in tables else "", text, flags=re.S)
    text = re.sub(r"^--.*\n", "", text, flags=re.M)

    def filled(match: re.Match[str]) -> str:
        table, column = match.groups()
        if column is None:
            return tables[table]
        return column if column in _columns(connection, tables[table]) else "NULL"

    return re.sub(r"@(\w+)(?:\.(\w+))?@", filled, text)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _name_copies(connection: sqlite3.Connection) -> None:
    names = [(-2, "Memset (Device)"), (-3, "CUDA graph, not traced by node")]
    for (number,) in connection.execute("SELECT DISTINCT name_id FROM op WHERE kind = 'memcpy'"):
        kind, memories = divmod(-(number + 1000), 100)
        copy = _COPIES[kind] if kind < len(_COPIES) else "?"
        source, target = (_MEMORIES[min(memory, len(_MEMORIES) - 1)] for memory in divmod(memories, 10))
        names.append((number, f"Memcpy {copy} ({source} -> {target})"))
    connection.executemany("INSERT INTO name VALUES (?, ?)", names)


def _command(captured: Mapping[str, str]) -> tuple[str, ...] | None:
    prefix = "PROCESS_0:ARGUMENT_"
    found = {int(key[len(prefix) :]): value for key, value in captured.items() if re.fullmatch(prefix + r"\d+", key)}
    program = captured.get("PROCESS_0:COMMAND")
    if program is None and not found:
        return None
    return masked((*([program] if program is not None else []), *(found[number] for number in sorted(found))))


def _devices(connection: sqlite3.Connection, tables: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the GPUs that did work, or of all if the export does not number them."""
    if "TARGET_INFO_GPU" not in tables:
        return ()
    columns = _columns(connection, tables["TARGET_INFO_GPU"])
    number = next((c for c in ("cuDevice", "id") if c in columns), "rowid")
    query = f"SELECT {number}, CAST(name AS TEXT) FROM {tables['TARGET_INFO_GPU']} WHERE name NOTNULL ORDER BY {number}"
    rows = connection.execute(query).fetchall()
    used = {dev for (dev,) in connection.execute("SELECT DISTINCT dev FROM op")}
    return tuple(name for dev, name in rows if dev in used) or tuple(name for _, name in rows)


_DROPPED = re.compile(r"drop|lost|overflow|incomplete|not (all|be)\b.*\bcollected|out of memory|missing", re.IGNORECASE)


def _diagnostics(connection: sqlite3.Connection, tables: Mapping[str, str]) -> tuple[str, ...]:
    """What nsys reports about dropped data."""
    if "DIAGNOSTIC_EVENT" not in tables:
        return ()
    rows = connection.execute(f"SELECT DISTINCT CAST(text AS TEXT) FROM {tables['DIAGNOSTIC_EVENT']} ORDER BY text")
    return tuple(f"nsys: {' '.join(text.split())}" for (text,) in rows if text and _DROPPED.search(text))
