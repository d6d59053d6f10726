"""Atomic files: a reader, or a run after a kill, sees either the old file or the complete new one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specbench.workloads.json_values import Json

_TEMPORARY = re.compile(r"\..+\.[0-9]+\.tmp")  # the names that write_atomically uses

NonFinite = Callable[[float], Json]


def _unknown(value: float) -> Json:
    return None


def to_plain(value: object, non_finite: NonFinite = _unknown) -> Json:
    """`value` in types of strict JSON: dataclasses become dicts, numpy scalars numbers, and NaN and infinity are
    converted by `non_finite`."""
    kind = type(value)
    if value is None or kind is str or kind is int or kind is bool:  # the kinds of nearly all values come first
        return value  # type: ignore[return-value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else non_finite(float(value))  # a plain one also of numpy's
    if kind is dict or isinstance(value, Mapping):
        items = value.items()  # type: ignore[attr-defined]
        return {k if type(k) is str else str(to_plain(k)): to_plain(item, non_finite) for k, item in items}
    if isinstance(value, (list, tuple)):
        return [to_plain(item, non_finite) for item in value]
    if dataclasses.is_dataclass(kind):
        return {name: to_plain(getattr(value, name), non_finite) for name in _field_names(kind)}
    if isinstance(value, (np.ndarray, np.generic)):
        return to_plain(value.tolist(), non_finite)
    if isinstance(value, (set, frozenset)):
        return sorted((to_plain(item, non_finite) for item in value), key=str)
    if isinstance(value, Enum):
        return to_plain(value.value, non_finite)
    if isinstance(value, (str, bool, int)):
        return value
    return str(value)  # paths, dtypes


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def to_object(value: object) -> dict[str, Json]:
    """A dataclass or a mapping as a strict JSON object, see `to_plain`."""
    found = to_plain(value)
    assert isinstance(found, dict), value
    return found


def json_text(value: object) -> str:
    """`value` as indented strict JSON."""
    return indented(to_plain(value))


def indented(value: Json) -> str:
    """As `json_text`, for values that have the types of strict JSON already."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented strict JSON, atomically."""
    write_text(path, json_text(value))


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_named(path: Path, text: str) -> None:
    """Write `text` to a file that the user named, see `fill_named`."""
    fill_named(path, lambda file: file.write_text(text, encoding="utf-8"))


def fill_named(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file that the user named: in place where it is a link, a device or a pipe, which must stay
    what it is, otherwise atomically."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        write(path)
    else:
        write_atomically(path, write)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write `table` as zstd-compressed Parquet, atomically. Integers are stored as differences, so that rows of steps,
    mostly clocks, take less than half of the space."""
    leaves = [_leaf(field) for field in table.schema]
    integers = {name: "DELTA_BINARY_PACKED" for name, type_ in leaves if pa.types.is_integer(type_)}
    others = [name for name, _ in leaves if name not in integers]

    def write(temporary: Path) -> None:
        pq.write_table(table, temporary, compression="zstd", use_dictionary=others or False, column_encoding=integers)

    write_atomically(path, write)


def _leaf(field: pa.Field) -> tuple[str, pa.DataType]:
    """A column's name in Parquet and the type of its values."""
    name, type_ = field.name, field.type
    while pa.types.is_list(type_):
        name, type_ = f"{name}.list.element", type_.value_type
    return name, type_


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to disk and rename it over `path`, which errors
    name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if str(error.filename) != str(temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):  # it is not there, or not even its folder is
            temporary.unlink()


def remove_leftovers(directory: Path) -> None:
    """Removes the temporary files of killed writers from `directory`, which must have no writer now."""
    for path in directory.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            path.unlink()


def sha256_json(value: Json) -> str:
    """sha256 (hex) of plain data, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
