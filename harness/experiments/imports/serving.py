"""What the files of `vllm bench serve` and `sglang.bench_serving` have in common: lists with one value per request."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec

from specbench.workloads.json_values import Json, JsonObject

from .result import Struct, converted, named, totals

Duration = Annotated[float, msgspec.Meta(gt=0, le=9e9)]
_LISTS = ("input_lens", "output_lens", "ttfts", "itls")
_OWN = ("output_throughput", "request_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms")


def lists_of(raw: JsonObject, kind: type[Struct], where: str, advice: str) -> tuple[Struct | None, list[str]]:
    """The lists of a file, and notes; a file that has none gets a note with the tool's own totals."""
    if any(isinstance(raw.get(name), list) for name in _LISTS):
        return converted(raw, kind, where, advice), []
    return None, [f"totals only ({advice}): {named(totals(raw), _OWN)}"]


def rows_of(file: msgspec.Struct, where: str) -> list[dict[str, Any]]:
    """A row per request, without the lists that the file does not have. ValueError if the lists have different lengths
    or are empty."""
    lists = {name: values for name in file.__struct_fields__ if isinstance(values := getattr(file, name), tuple)}
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) != 1 or not any(lengths.values()):
        raise ValueError(f"{where}: requests do not match: {lengths}")
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def arrival_rate(rate: Json) -> Json:
    """Requests per second, not yet checked; None if all arrived at once, which tools write as infinity."""
    return None if rate == "inf" or (isinstance(rate, float) and not math.isfinite(rate)) else rate
