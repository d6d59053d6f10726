"""Records of a data file in any supported format: JSON lines, gzipped JSON lines, a JSON list, parquet."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from specbench.workloads.json_values import Json, JsonObject

READABLE = ".jsonl, .jsonl.gz, .json, .parquet"


def read_records(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """Numbered records of a file: line numbers (from 1) for JSON lines, positions (from 1) otherwise.

    Raises ValueError with the line number for malformed JSON, and for a file of another kind.
    """
    if path.suffix == ".parquet":
        yield from read_parquet(path)
    elif path.suffix == ".json":
        yield from read_json_list(path)
    elif path.name.endswith(".jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from read_lines(file, path)
    elif path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as file:
            yield from read_lines(file, path)
    else:
        raise ValueError(f"{path}: unknown kind of data file; allowed: {READABLE}")


def read_lines(file: IO[str], path: Path) -> Iterator[tuple[int, JsonObject]]:
    number = 0
    try:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, as_record(json.loads(line), f"{path}:{number}")
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{number}: not valid JSON ({error.msg} at column {error.colno})") from error
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise ValueError(f"{path}:{number + 1}: file is truncated or not UTF-8 text ({error})") from error


def read_json_list(path: Path) -> Iterator[tuple[int, JsonObject]]:
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: not valid JSON ({error.msg} at column {error.colno})") from error
    if not isinstance(records, list):
        raise ValueError(f"{path}: expected a JSON list of records, found {type(records).__name__}")
    for number, record in enumerate(records, start=1):
        yield number, as_record(record, f"{path} record {number}")


def read_parquet(path: Path) -> Iterator[tuple[int, JsonObject]]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        rows = parquet.read_table(path).to_pylist()
    except arrow.ArrowInvalid as error:
        raise ValueError(f"{path}: not a readable parquet file ({error})") from error
    yield from enumerate(rows, start=1)


def as_record(value: Json, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def text_field(record: JsonObject, key: str, where: str) -> str:
    """A field that must be a string. Raises ValueError naming the field and what the record has instead."""
    value = record.get(key)
    if not isinstance(value, str):
        raise ValueError(
            f"{where}: field {key!r} is {type(value).__name__}, expected a string; it has: {', '.join(record)}"
        )
    return value


def objects_field(record: JsonObject, key: str) -> list[dict[str, Json]]:
    """The objects of a field that is a list; none where it is not."""
    value = record.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def question_record(record: JsonObject) -> JsonObject:
    """The record itself, or the one that an evaluation request holds in `doc`."""
    inner = record.get("doc")
    return inner if isinstance(inner, dict) else record
