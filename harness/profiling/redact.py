"""Copies of traces without private data about the machine and its user.

An nsys export has the whole environment of the profiled process (also as one string among the kernel names), its
output, the machine's other processes and threads, and names of hosts and users; a Kineto trace may have host names and
paths. The copy keeps: events with the strings that they refer to, versions, the GPU's name, and the command line, with
values of options that look secret masked.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from specbench.harness.store.files import write_atomically
from specbench.harness.store.masking import HOME, MASK, SECRET, is_secret_name, masked
from specbench.workloads.json_values import Json

from .chrome_json import ChromeTrace
from .trace_db import KINETO, NSYS, trace_kind

# Rows of all other tables go: output, environment, processes, threads, network, and what later versions may add.
_KEPT_TABLES = re.compile(
    r"(CUPTI|CUDA|CUDNN|CUBLAS|NVTX|GPU|ENUM|META_DATA|TARGET_INFO_GPU|TARGET_INFO_CUDA)(_\w+)?"
    r"|StringIds|DIAGNOSTIC_EVENT|ANALYSIS_DETAILS|PROFILER_OVERHEAD|TARGET_INFO_SESSION_START_TIME"
)
_STRING_ID = re.compile(r"(name|text)(id)?$", re.IGNORECASE)  # columns that hold numbers of StringIds
_HOST_KEYS = re.compile(r"host_?name|host_computer|display_name", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"environment|\benv\b", re.IGNORECASE)
_IDENTITY = re.compile(rf"{_HOST_KEYS.pattern}|user_?name|login|address|\bmac\b|uuid|serial", re.IGNORECASE)
_VARIABLE = re.compile(r"(\w+)=\"?([^\n\0\"]+)")
_KINETO_KEPT = (
    *("schemaVersion", "deviceProperties", "cupti_version", "cuda_runtime_version", "cuda_driver_version"),
    *("displayTimeUnit", "baseTimeNanoseconds", "record_shapes", "profile_memory"),
)


def redact(path_in: Path, path_out: Path) -> None:
    """Writes the redacted copy of an nsys sqlite export or a Kineto trace (gzipped if `path_out` ends in .gz).

    ValueError for other files, including .nsys-rep reports, which must be exported first.
    """
    kind = trace_kind(path_in)
    if kind == NSYS:
        write_atomically(path_out, lambda temporary: _copy_nsys(path_in, temporary))
    elif kind == KINETO:
        write_atomically(path_out, lambda temporary: _copy_kineto(path_in, temporary, path_out.suffix == ".gz"))
    else:
        raise ValueError(
            f"redact: {path_in.name} is neither sqlite nor JSON; allowed: an nsys sqlite export (`nsys export --type "
            "sqlite`) or a torch profiler trace"
        )


def _anonymous(text: str, hosts: tuple[str, ...]) -> str:
    for host in hosts:
        text = text.replace(host, MASK)
    return HOME.sub(r"\1user", text)


# -- nsys ----------------------------------------------------------------------------------------------------------


def _copy_nsys(path: Path, target: Path) -> None:
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as original:
            original.execute("VACUUM INTO ?", (str(target),))
        with closing(sqlite3.connect(target)) as copy:
            copy.execute("PRAGMA secure_delete = ON")
            copy.execute("PRAGMA journal_mode = MEMORY")  # no file next to the copy
            _clean(copy)
            copy.commit()
            copy.execute("VACUUM")  # rebuilds the file: freed pages would keep the text
    except sqlite3.DatabaseError as error:
        raise ValueError(f"redact: {path.name} cannot be read as a sqlite export: {error}") from error


def _clean(copy: sqlite3.Connection) -> None:
    for kind in ("trigger", "view"):  # exports have none, and a trigger would run with the cleaning
        for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = ?", (kind,)).fetchall():
            copy.execute('DROP {} "{}"'.format(kind, name.replace('"', '""')))
    names = copy.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
    columns = {t: [row[1] for row in copy.execute(f'PRAGMA table_info("{t}")')] for (t,) in names}
    hosts = _identities(copy, columns)
    copy.create_function("anonymous", 1, lambda text: _anonymous(text, hosts))
    for table in columns:
        if not _KEPT_TABLES.fullmatch(table):
            copy.execute(f'DELETE FROM "{table}"')
    if "StringIds" in columns:
        _drop_strings(copy, columns)
    for table, of_table in columns.items():
        if {"name", "value"} <= set(of_table):
            _clean_pairs(copy, table)
        for column in of_table:
            if _IDENTITY.search(column):
                copy.execute(f"UPDATE \"{table}\" SET \"{column}\" = '' WHERE typeof(\"{column}\") IN ('text', 'blob')")
            else:
                copy.execute(
                    f'UPDATE "{table}" SET "{column}" = anonymous("{column}") WHERE typeof("{column}") = \'text\''
                )


def _identities(copy: sqlite3.Connection, columns: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Machine names, from the rows that are labelled so, and values of secret variables: they are removed wherever else
    they occur."""
    found: list[str] = []
    environments: list[str] = []
    if "StringIds" in columns:  # the environment as the process has it
        environments += [text for (text,) in copy.execute("SELECT value FROM StringIds WHERE instr(value, char(0))")]
    for table, of_table in columns.items():
        if {"name", "value"} <= set(of_table):
            rows = copy.execute(f"SELECT name, value FROM \"{table}\" WHERE typeof(value) = 'text'").fetchall()
            found += [value for name, value in rows if _HOST_KEYS.search(str(name))]
            environments += [value for name, value in rows if _ENVIRONMENT.search(str(name))]
    for environment in environments:
        found += [text for key, text in _VARIABLE.findall(environment) if re.search(SECRET, key, re.IGNORECASE)]
    return tuple(sorted({text for text in found if len(text) > 3}, key=lambda text: (-len(text), text)))


def _drop_strings(copy: sqlite3.Connection, columns: Mapping[str, list[str]]) -> None:
    """Removes strings that no row refers to any more; one of them is the whole environment of the process."""
    named = [(t, c) for t, names in columns.items() if t != "StringIds" for c in names if _STRING_ID.search(c)]
    ids = " UNION ".join(f'SELECT "{c}" FROM "{t}" WHERE typeof("{c}") = \'integer\'' for t, c in named)
    copy.execute(f"DELETE FROM StringIds{f' WHERE id NOT IN ({ids})' if named else ''}")


def _clean_pairs(copy: sqlite3.Connection, table: str) -> None:
    """Rows of names and values: rows of the environment are removed, identifying rows lose their value, command lines
    are masked."""
    rows = copy.execute(f'SELECT rowid, name, value FROM "{table}" ORDER BY rowid').fetchall()
    arguments = [(row, value) for row, name, value in rows if re.search(r":ARGUMENT_\d+$", str(name))]
    shown = [*zip(masked(tuple(str(value) for _, value in arguments)), (row for row, _ in arguments), strict=True)]
    shown += [(MASK, row) for row, name, _ in rows if _IDENTITY.search(str(name))]
    copy.executemany(f'UPDATE "{table}" SET value = ? WHERE rowid = ?', shown)
    gone = [(row,) for row, name, _ in rows if _ENVIRONMENT.search(str(name))]
    copy.executemany(f'DELETE FROM "{table}" WHERE rowid = ?', gone)


# -- Kineto ----------------------------------------------------------------------------------------------------------


def _copy_kineto(path: Path, target: Path, packed: bool) -> None:
    trace = ChromeTrace(path, path.name)
    hosts = tuple(str(v) for k, v in trace.header.items() if _HOST_KEYS.search(k) and isinstance(v, str) and len(v) > 3)
    kept = {key: trace.header[key] for key in _KINETO_KEPT if key in trace.header}
    with gzip.open(target, "wt", encoding="utf-8") if packed else target.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(kept)[:-1] + (", " if kept else "") + '"traceEvents": [\n')
        stream.writelines(_lines(trace, hosts))
        stream.write("\n]}\n")


def _lines(trace: ChromeTrace, hosts: tuple[str, ...]) -> Iterator[str]:
    """Events as they are in the file, without identifying data."""
    for number, (event, text) in enumerate(trace.with_text()):
        args = event.get("args")
        if isinstance(args, dict) and (shown := _without_private(args)) != args:
            text = json.dumps({**event, "args": shown})
        yield (",\n" if number else "") + _anonymous(text, hosts)


def _without_private(args: Mapping[str, Json]) -> dict[str, Json]:
    """Masks identifying values and values named as secrets; command lines as `masked` does."""
    shown: dict[str, Json] = {}
    for key, value in args.items():
        is_private = _IDENTITY.search(key) or _ENVIRONMENT.search(key) or is_secret_name(key)
        text = masked((value,))[0] if isinstance(value, str) else value
        shown[key] = MASK if is_private else text
    return shown
