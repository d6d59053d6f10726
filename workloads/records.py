"""Records of a data file in any supported format: JSON lines, gzipped JSON lines, a JSON list, parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from specbench.workloads.guarded import MAX_TRACE_BYTES, numbered_lines, parse_json, read_parquet, read_text
from specbench.workloads.json_values import Json, JsonObject

READABLE = ".jsonl, .jsonl.gz, .json, .parquet"


def read_records(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """Numbered records of a file: line numbers (from 1) for JSON lines, positions (from 1) otherwise.

    Raises ValueError with the line number for malformed JSON, and for a file of another kind.
    """
    if path.suffix == ".parquet":
        yield from enumerate(read_parquet(path).to_pylist(), start=1)
    elif path.suffix == ".json":
        yield from read_json_list(path)
    elif path.suffix == ".jsonl" or path.name.endswith(".jsonl.gz"):
        for number, line in numbered_lines(path):
            yield number, as_record(parse_at(line, path, number), f"{path}:{number}")
    else:
        raise ValueError(f"{path}: unknown kind of data file; allowed: {READABLE}")


def parse_at(text: str, path: Path, line: int = 1) -> Json:
    """Parses JSON that begins at a line of a file. The ValueError names file and line."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        where = f"{path}:{line + error.lineno - 1}"
        raise ValueError(
            f"{where}: not valid JSON ({error.msg.removesuffix(' at')} at column {error.colno})"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}:{line}: {error}") from error


def read_json_list(path: Path) -> Iterator[tuple[int, JsonObject]]:
    records = parse_at(read_text(path, MAX_TRACE_BYTES), path)
    if not isinstance(records, list):
        raise ValueError(f"{path}: expected a JSON list of records, found {type(records).__name__}")
    for number, record in enumerate(records, start=1):
        yield number, as_record(record, f"{path} record {number}")


def as_record(value: Json, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def without_nulls(record: JsonObject) -> JsonObject:
    """A key that is null is not there: in Parquet every row has every column."""
    return {key: value for key, value in record.items() if value is not None}


def text_field(record: JsonObject, key: str, where: str) -> str:
    """A field that must be a string. Raises ValueError naming the field and what the record has instead."""
    value = record.get(key)
    if not isinstance(value, str):
        raise ValueError(
            f"{where}: field {key!r} is {type(value).__name__}, expected a string; it has: {', '.join(record)}"
        )
    return value


def objects_field(record: JsonObject, key: str) -> list[dict[str, Json]]:
    """The objects in a field that is a list; empty for any other field."""
    value = record.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def question_record(record: JsonObject) -> JsonObject:
    """The record itself, or the one that an evaluation request holds in `doc`."""
    inner = record.get("doc")
    return inner if isinstance(inner, dict) else record
