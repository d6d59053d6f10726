"""Copies of traces without what they tell about the machine and its user.

An nsys export holds the whole environment of the profiled process (also as one string among those that name kernels),
its output, the machine's other processes and threads, and names of hosts and users; a Kineto trace may hold host names
and paths. What the copy keeps: events with the strings that they name, versions, the GPU's name, and the command line,
with values of options that look secret masked.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from specbench.harness.store.files import write_atomically

from .chrome_json import ChromeTrace
from .masking import HOME, MASK, SECRET, masked
from .trace_db import MAGIC

# Rows of all other tables go: output, environment, processes, threads, network, and what later versions may add.
_KEPT_TABLES = re.compile(
    r"(CUPTI|CUDA|CUDNN|CUBLAS|NVTX|GPU|ENUM|META_DATA|TARGET_INFO_GPU|TARGET_INFO_CUDA)(_\w+)?"
    r"|StringIds|DIAGNOSTIC_EVENT|ANALYSIS_DETAILS|PROFILER_OVERHEAD|TARGET_INFO_SESSION_START_TIME"
)
_STRING_ID = re.compile(r"(name|text)(id)?$", re.IGNORECASE)  # columns that hold numbers of StringIds
_IDENTITY = re.compile(
    r"host_?name|host_computer|display_name|user_?name|login|address|\bmac\b|uuid|serial", re.IGNORECASE
)
_ENVIRONMENT = re.compile(r"environment", re.IGNORECASE)
_HOST_KEYS = re.compile(r"host_?name|host_computer|display_name", re.IGNORECASE)
_VARIABLE = re.compile(r"(\w+)=\"?([^\n\0\"]+)")
_KINETO_KEPT = (
    *("schemaVersion", "deviceProperties", "cupti_version", "cuda_runtime_version", "cuda_driver_version"),
    *("displayTimeUnit", "baseTimeNanoseconds", "record_shapes", "profile_memory"),
)


def redact(path_in: Path, path_out: Path) -> None:
    """Writes the redacted copy of an nsys sqlite export or a Kineto trace (gzipped where `path_out` ends in .gz).

    ValueError for other files, .nsys-rep reports among them: those are exported first.
    """
    with path_in.open("rb") as stream:
        head = stream.read(256)
    if head.startswith(MAGIC):
        _redact_nsys(path_in, path_out)
    elif head.startswith(b"\x1f\x8b") or head.lstrip()[:1] in (b"{", b"["):
        _redact_kineto(path_in, path_out)
    else:
        raise ValueError(
            f"redact: {path_in.name} is neither sqlite nor JSON; allowed: an nsys sqlite export (`nsys export --type "
            "sqlite`) or a torch profiler trace"
        )


# -- nsys ----------------------------------------------------------------------------------------------------------


def _redact_nsys(path_in: Path, path_out: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path_out.parent) as folder:
        work = Path(folder) / "trace.sqlite"
        try:
            with closing(sqlite3.connect(f"{path_in.resolve().as_uri()}?mode=ro", uri=True)) as original:
                original.execute("VACUUM INTO ?", (str(work),))
            with closing(sqlite3.connect(work)) as copy:
                copy.execute("PRAGMA secure_delete = ON")
                _clean(copy)
                copy.commit()
                # Rebuilds the file: freed pages would keep the text.
                copy.execute("VACUUM")
        except sqlite3.DatabaseError as error:
            raise ValueError(f"redact: {path_in.name} cannot be read as a sqlite export: {error}") from error
        write_atomically(path_out, lambda temporary: shutil.copyfile(work, temporary))


def _clean(copy: sqlite3.Connection) -> None:
    tables = [
        n for (n,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    ]
    columns = {t: [row[1] for row in copy.execute(f'PRAGMA table_info("{t}")')] for t in tables}
    hosts = _identities(copy, columns)
    for table in tables:
        if not _KEPT_TABLES.fullmatch(table):
            copy.execute(f'DELETE FROM "{table}"')
    if "StringIds" in tables:
        _drop_strings(copy, columns)
    for table in tables:
        if {"name", "value"} <= set(columns[table]):
            _clean_pairs(copy, table)
        for column in columns[table]:
            if _IDENTITY.search(column):
                copy.execute(f"UPDATE \"{table}\" SET \"{column}\" = '' WHERE typeof(\"{column}\") IN ('text', 'blob')")
            else:
                _clean_text(copy, table, column, hosts)


def _identities(copy: sqlite3.Connection, columns: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Names of machines, from the rows that call themselves so, and values of secret variables: wherever else they
    stand, they go."""
    found: set[str] = set()
    for (text,) in copy.execute("SELECT value FROM StringIds") if "StringIds" in columns else ():
        if isinstance(text, str) and "\0" in text:  # the environment as the process has it
            found |= _secrets(text)
    for table, names in columns.items():
        if not {"name", "value"} <= set(names):
            continue
        for name, value in copy.execute(f'SELECT name, value FROM "{table}"'):
            if not (isinstance(name, str) and isinstance(value, str)):
                continue
            if _HOST_KEYS.search(name):
                found.add(value)
            elif _ENVIRONMENT.search(name):
                found |= _secrets(value)
    return tuple(sorted((text for text in found if len(text) > 3), key=lambda text: (-len(text), text)))


def _secrets(environment: str) -> set[str]:
    return {text for key, text in _VARIABLE.findall(environment) if re.search(SECRET, key, re.IGNORECASE)}


def _drop_strings(copy: sqlite3.Connection, columns: Mapping[str, list[str]]) -> None:
    """Strings that no row names any more: the environment of the process stands among them, whole."""
    named = [(t, c) for t, names in columns.items() if t != "StringIds" for c in names if _STRING_ID.search(c)]
    ids = " UNION ".join(f'SELECT "{c}" FROM "{t}" WHERE typeof("{c}") = \'integer\'' for t, c in named)
    copy.execute(f"DELETE FROM StringIds{f' WHERE id NOT IN ({ids})' if named else ''}")


def _clean_pairs(copy: sqlite3.Connection, table: str) -> None:
    """Rows of names and values: those of the environment go, those that identify lose their value, those of a command
    line are masked."""
    rows = copy.execute(f'SELECT rowid, name, value FROM "{table}" ORDER BY rowid').fetchall()
    arguments = [(row, value) for row, name, value in rows if re.search(r":ARGUMENT_\d+$", str(name))]
    shown = masked(tuple(str(value) for _, value in arguments))
    for (row, _), value in zip(arguments, shown, strict=True):
        copy.execute(f'UPDATE "{table}" SET value = ? WHERE rowid = ?', (value, row))
    for row, name, _ in rows:
        if _ENVIRONMENT.search(str(name)):
            copy.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (row,))
        elif _IDENTITY.search(str(name)):
            copy.execute(f"UPDATE \"{table}\" SET value = '{MASK}' WHERE rowid = ?", (row,))


def _clean_text(copy: sqlite3.Connection, table: str, column: str, hosts: tuple[str, ...]) -> None:
    marks = [*hosts, "/home/", "/Users/"]
    wanted = " OR ".join(f'instr("{column}", ?)' for _ in marks)
    rows = copy.execute(
        f'SELECT rowid, "{column}" FROM "{table}" WHERE typeof("{column}") = \'text\' AND ({wanted})', marks
    ).fetchall()
    for row, text in rows:
        copy.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (_anonymous(text, hosts), row))


def _anonymous(text: str, hosts: tuple[str, ...]) -> str:
    for host in hosts:
        text = text.replace(host, MASK)
    return HOME.sub(r"\1user", text)


# -- Kineto ----------------------------------------------------------------------------------------------------------


def _redact_kineto(path_in: Path, path_out: Path) -> None:
    trace = ChromeTrace(path_in, path_in.name)
    for _ in trace:  # what stands behind the events names the host, too
        pass
    hosts = tuple(str(v) for k, v in trace.header.items() if _HOST_KEYS.search(k) and isinstance(v, str) and len(v) > 3)
    kept = {key: trace.header[key] for key in _KINETO_KEPT if key in trace.header}

    def write(temporary: Path) -> None:
        packed = path_out.suffix == ".gz"
        with (
            gzip.open(temporary, "wt", encoding="utf-8") if packed else temporary.open("w", encoding="utf-8") as stream
        ):
            stream.write(json.dumps(kept)[:-1] + (", " if kept else "") + '"traceEvents": [\n')
            stream.writelines(_lines(trace, hosts))
            stream.write("\n]}\n")

    write_atomically(path_out, write)


def _lines(trace: ChromeTrace, hosts: tuple[str, ...]) -> Iterator[str]:
    """Events as they stand in the file, without what identifies."""
    for number, (event, text) in enumerate(trace.with_text()):
        args = event.get("args")
        if isinstance(args, dict) and any(_IDENTITY.search(k) or _ENVIRONMENT.search(k) for k in args):
            shown = {k: MASK if _IDENTITY.search(k) or _ENVIRONMENT.search(k) else v for k, v in args.items()}
            text = json.dumps({**event, "args": shown})
        yield (",\n" if number else "") + _anonymous(text, hosts)
