"""Reads files from untrusted sources, within limits: completely, or refused in one line.

Refused are devices, pipes and folders (before a byte is read), files and unpacked contents beyond a size, text that is
not UTF-8, and JSON or TOML that nests deeper than MAX_DEPTH or holds half a surrogate pair, which no file can hold
again. Every refusal is a ValueError; for invalid content, `parse_*` omit the file's name and `read_*` include it.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from specbench.workloads.json_values import Json

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet

MAX_BYTES = 1 << 30
MAX_TRACE_BYTES = 8 << 30
MAX_LINE_BYTES = 1 << 30
ANY_SIZE = 1 << 62  # for files that are never in memory as a whole
MAX_PACKED_RATIO = 200  # of text and traces 5 to 50; of a file made to fill a memory about 1,000
SMALL_BYTES = 64 << 20  # may be unpacked by any ratio
MAX_CELLS = 1 << 30  # of a Parquet table: rows times columns
MAX_DEPTH = 100

GZIP = b"\x1f\x8b"
_MARK = "\ufeff"
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def open_file(path: Path, limit: int = MAX_BYTES) -> io.BufferedReader:
    """Opens a regular file of at most `limit` bytes. OSError as `open` raises it; ValueError for anything else."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device, a pipe or a socket"
        raise ValueError(f"{path}: is {kind}; allowed: a file")
    file = path.open("rb")
    if path.stat().st_size > limit:
        file.close()
        raise ValueError(f"{path}: has {path.stat().st_size:,} bytes; at most {limit:,} are read")
    return file


@contextmanager
def open_unpacked(path: Path, limit: int = MAX_BYTES) -> Iterator[IO[bytes]]:
    """The content of a file as a stream, unpacked if gzipped. For lines: `numbered_lines`. ValueError beyond `limit`,
    and if the packed file is truncated or damaged."""
    with open_file(path, limit) as file:
        if file.peek(2)[:2] != GZIP:
            yield file
            return
        ratio = max(SMALL_BYTES, MAX_PACKED_RATIO * path.stat().st_size)
        try:
            yield io.BufferedReader(_Unpacked(gzip.GzipFile(fileobj=file), path, min(limit, ratio)))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: is truncated or damaged ({error})") from error


class _Unpacked(io.RawIOBase):
    """The content of a packed file, up to `limit` bytes."""

    def __init__(self, packed: gzip.GzipFile, path: Path, limit: int) -> None:
        self._packed, self._path, self._limit, self._num_read = packed, path, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._packed.read(len(buffer))
        self._num_read += len(data)
        if self._num_read > self._limit:
            raise ValueError(f"{self._path}: unpacks to more than {self._limit:,} bytes, the most that is read")
        buffer[: len(data)] = data
        return len(data)


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The whole file, unpacked where it is gzipped."""
    with open_unpacked(path, limit) as file:
        return file.read()


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The whole file as UTF-8."""
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error})") from error


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1, blank ones left out; one line is in memory at a time."""
    with open_unpacked(path, ANY_SIZE) as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(f"{path}:{number}: the line has more than {MAX_LINE_BYTES:,} bytes")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}:{number}: is not UTF-8 text ({error})") from error
            if text.strip():
                yield number, text.rstrip("\r\n")


def parse_json(text: str) -> Json:
    """json.JSONDecodeError, a ValueError, for text that is not JSON; ValueError for what cannot be handled."""
    _refuse_mark(text)
    try:
        value: Json = json.loads(text)
    except RecursionError:
        raise ValueError(f"nests more than {MAX_DEPTH} deep") from None
    _check_depth(value)
    if _HALF_PAIR.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.start + 1]
            raise ValueError(f"holds {half!a}, half of a surrogate pair, which is not a character") from None
    return value


def read_json(path: Path) -> Json:
    """ValueError naming the file for one that is not JSON."""
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """ValueError naming the file if it does not contain a JSON object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """ValueError for text that is not TOML, or nests too deep."""
    _refuse_mark(text)
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"nests more than {MAX_DEPTH} deep") from None
    _check_depth(value)
    return value


def _refuse_mark(text: str) -> None:
    if text.startswith(_MARK):
        raise ValueError("starts with a byte order mark; save it as UTF-8 without BOM")


def _check_depth(value: object) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        parts = [part.values() if isinstance(part, dict) else part for part in level]
        level = [child for part in parts for child in part if type(child) in (dict, list)]  # what parsers make
        if not level:
            return
    raise ValueError(f"nests more than {MAX_DEPTH} deep")


def read_parquet(path: Path) -> pyarrow.Table:
    """ValueError naming the file if it is not Parquet, is damaged, or has too large a table."""
    with _open_parquet(path) as whole:
        facts = whole.metadata
        num_bytes = sum(facts.row_group(n).total_byte_size for n in range(facts.num_row_groups))
        if facts.num_rows * facts.num_columns > MAX_CELLS or num_bytes > MAX_TRACE_BYTES:
            raise ValueError(
                f"{path}: has {facts.num_rows:,} rows of {facts.num_columns} columns in {num_bytes:,} bytes; at most "
                f"{MAX_CELLS:,} values and {MAX_TRACE_BYTES:,} bytes are read"
            )
        # Threads of pyarrow that start while the process ends abort it, with exit code 134 in place of its own.
        return whole.read(use_threads=num_bytes > SMALL_BYTES)


def read_parquet_schema(path: Path) -> pyarrow.Schema:
    """Columns and metadata only; ValueError as for `read_parquet`."""
    with _open_parquet(path) as whole:
        return whole.schema_arrow


@contextmanager
def _open_parquet(path: Path) -> Iterator[parquet.ParquetFile]:
    import pyarrow
    from pyarrow import parquet

    with open_file(path, MAX_TRACE_BYTES) as file:
        try:
            yield parquet.ParquetFile(file)
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path}: not a readable parquet file ({error})") from error


def first_line(error: BaseException) -> str:
    """Of its text; its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
