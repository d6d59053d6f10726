"""Typed documents: a frozen dataclass to a JSON file and back, with errors that name the file and the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from specbench.harness.store.files import Json, indented, to_plain, write_text
from specbench.workloads.guarded import parse_json, read_text

_Document = TypeVar("_Document")
_MEND = "restore it from a copy, or use the specbench that wrote it"


def to_document(value: object) -> Json:
    """`value` as strict JSON that `from_document` reads back exactly: infinity and NaN become text."""
    return to_plain(value, non_finite=str)


def from_document(kind: type[_Document], raw: object, where: str, mend: str = _MEND) -> _Document:
    """The dataclass from plain data. ValueError naming `where` and the field, ending with `mend`: what to do; unknown
    fields are left out."""
    try:
        return msgspec.convert(raw, kind, strict=False, dec_hook=_from_text)  # not strict: "inf" is a float
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$")
        field = f"{place.strip('.`')}: " if place else ""
        raise ValueError(f"{where}: {field}{said}; {mend}") from error


def _from_text(kind: type[object], value: object) -> object:
    """Converts a path, the only type stored as text that JSON does not have."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"Expected `{kind.__name__}`, got {value!r}")


def check_known(kind: type, raw: object, where: str) -> None:
    """ValueError if plain data has fields that `kind` lacks: the request would not be understood completely."""
    names = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(raw.keys() - names) if isinstance(raw, dict) else []
    if unknown:
        raise ValueError(f"{where}: {', '.join(unknown)}: not known to this version; use the specbench that wrote it")


def check_nothing_lost(raw: Json, read: object, where: str) -> None:
    """ValueError naming the fields, at any depth, that `raw` has and the dataclass `read` from it does not."""
    if lost := list(_lost(raw, to_document(read), "")):
        raise ValueError(f"{where}: {', '.join(lost)}: not known to this version; use the specbench that wrote it")


def _lost(raw: Json, read: Json, place: str) -> Iterator[str]:
    if isinstance(raw, dict) and isinstance(read, dict):
        for name, value in raw.items():
            yield from _lost(value, read[name], f"{place}{name}.") if name in read else [place + name]
    elif isinstance(raw, list) and isinstance(read, list):
        for value, found in zip(raw, read, strict=True):
            yield from _lost(value, found, place)


def write_document(file: Path, value: object) -> None:
    """Write a dataclass as indented JSON, atomically."""
    write_text(file, indented(to_document(value)))


def read_document(file: Path, kind: type[_Document], schema: str) -> _Document:
    """The document in an existing file; ValueError for one that is damaged or of another schema."""
    return from_document(kind, checked_schema(read_object(file), schema, file), str(file))


def checked_schema(raw: dict[str, Json], schema: str, file: Path) -> dict[str, Json]:
    """`raw` itself; ValueError if it has another schema."""
    if raw.get("schema") != schema:
        found = raw.get("schema")
        raise ValueError(f"{file}: schema {found!r}, this version reads {schema!r}; use the specbench that wrote it")
    return raw


def read_object(file: Path, mend: str = "restore it from a copy, or measure again") -> dict[str, Json]:
    """The JSON object in an existing file; ValueError for a damaged file, ending with `mend`: what to do."""
    try:
        raw = parse_json(read_text(file))
    except ValueError as error:
        raise ValueError(f"{file}: damaged ({error}); {mend}") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{file}: not a JSON object; {mend}")
    return raw
