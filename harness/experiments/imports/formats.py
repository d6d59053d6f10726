"""The supported formats, recognised by the content of their objects, never by a file's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.workloads.guarded import parse_json, read_text
from specbench.workloads.json_values import JsonObject

from . import aiperf, guidellm, sglang_bench, vllm_bench
from .result import Result


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """`looked_for`: what `is_it` looks for in every object of a file. `read`: reads all objects of one file."""

    name: str
    looked_for: str
    is_it: Callable[[JsonObject], bool]
    read: Callable[[Sequence[JsonObject], str], list[Result]]


def _each(read: Callable[[JsonObject, str], Result]) -> Callable[[Sequence[JsonObject], str], list[Result]]:
    """For formats whose objects are one result each."""

    def read_all(objects: Sequence[JsonObject], where: str) -> list[Result]:
        places = [where] if len(objects) == 1 else [f"{where}, result {n + 1}" for n in range(len(objects))]
        return [read(raw, place) for raw, place in zip(objects, places, strict=True)]

    return read_all


FORMATS = (
    Format(
        name=sglang_bench.TOOL,
        looked_for=sglang_bench.LOOKED_FOR,
        is_it=sglang_bench.is_it,
        read=_each(sglang_bench.read),
    ),
    Format(name=vllm_bench.TOOL, looked_for=vllm_bench.LOOKED_FOR, is_it=vllm_bench.is_it, read=_each(vllm_bench.read)),
    Format(name=f"{aiperf.TOOL} records", looked_for=aiperf.RECORDS, is_it=aiperf.is_record, read=aiperf.read_records),
    Format(name=f"{aiperf.TOOL} totals", looked_for=aiperf.TOTALS, is_it=aiperf.is_totals, read=aiperf.read_totals),
    Format(name=guidellm.TOOL, looked_for=guidellm.LOOKED_FOR, is_it=guidellm.is_it, read=guidellm.read),
)


def read_results(path: Path) -> list[Result]:
    """Reads a file of any format. ValueError naming the file, and the field or what was looked for, if it fails."""
    objects = _objects(path)
    for form in FORMATS:
        if all(form.is_it(raw) for raw in objects):
            return form.read(objects, str(path))
    known = "; ".join(f"{form.name} ({form.looked_for})" for form in FORMATS)
    keys = ", ".join(sorted(objects[0])[:8]) or "nothing"
    raise ValueError(f"{path}: not a result file of a known benchmark; looked for {known}; its objects contain {keys}")


def _objects(path: Path) -> list[JsonObject]:
    """The objects of a file with a single object or one object per line."""
    text = read_text(path)
    try:
        values = [parse_json(text)]
    except ValueError as whole:
        try:
            values = [parse_json(line) for line in text.split("\n") if line.strip()]
        except ValueError:
            raise ValueError(f"{path}: not JSON: {whole}") from whole
    if not values:
        raise ValueError(f"{path}: the file is empty")
    objects: list[JsonObject] = []
    for number, value in enumerate(values, 1):
        if not isinstance(value, Mapping):
            raise ValueError(f"{path}: value {number}: expected a JSON object, found {type(value).__name__}")
        objects.append(value)
    return objects
