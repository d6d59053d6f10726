"""What the files of `vllm bench serve` and `sglang.bench_serving` have in common: lists with one value per request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from specbench.workloads.json_values import Json, JsonObject

from .checks import check_concurrency, contradiction, exceeds, span_s
from .result import Count, Request, Struct, converted, named, totals

Duration = Annotated[float, msgspec.Meta(gt=0, le=9e9)]
_LISTS = ("input_lens", "output_lens", "ttfts", "itls")
_OWN = ("output_throughput", "request_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms")


class _Totals(msgspec.Struct, frozen=True, kw_only=True):
    completed: Count | None = None
    total_output_tokens: Count | None = None


def lists_of(raw: JsonObject, kind: type[Struct], where: str, advice: str) -> tuple[Struct | None, list[str]]:
    """The lists of a file, and notes; a file that has none gets a note with the tool's own totals."""
    if any(raw.get(name) is not None for name in _LISTS):
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


def check_totals(
    raw: JsonObject,
    duration_s: float,
    max_concurrency: int | None,
    rows: Sequence[Mapping[str, Any]],
    requests: Sequence[Request],
    where: str,
) -> None:
    """ValueError if the totals of a file contradict its lists; totals that it does not have are not compared."""
    own = converted(raw, _Totals, where)
    num_tokens = sum(row["output_lens"] for row in rows)
    if own.total_output_tokens not in (None, num_tokens):
        raise contradiction(
            where, f"total_output_tokens is {own.total_output_tokens}", f"output_lens add up to {num_tokens}"
        )
    whole = [row for row in rows if not row.get("errors")]
    num_served = sum(one.is_served for one in requests)  # one without output may have failed without a word
    if own.completed is not None and not num_served <= own.completed <= len(whole):
        raise contradiction(
            where, f"completed is {own.completed}", f"{len(whole)} of {len(rows)} requests have no error"
        )
    _check_times(duration_s, max_concurrency, requests, where)


def _check_times(duration_s: float, max_concurrency: int | None, requests: Sequence[Request], where: str) -> None:
    """Both tools start the clock of `duration` before the first request and stop it after the last one."""
    longest_s = max((one.e2e_s for one in requests if one.is_served), default=0.0)
    if exceeds(longest_s, duration_s):
        raise contradiction(
            where, f"duration is {duration_s:.4g} s", f"a request took {longest_s:.4g} s (ttfts, itls or latencies)"
        )
    if exceeds(took_s := span_s(requests), duration_s):
        raise contradiction(
            where,
            f"duration is {duration_s:.4g} s",
            f"the last request ended {took_s:.4g} s after the first was sent (start_times)",
        )
    has_starts = all(one.start_s is not None for one in requests if one.is_served)
    window_s, source = (took_s, "start_times") if has_starts else (duration_s, "duration")
    check_concurrency(f"max_concurrency is {max_concurrency}", max_concurrency, requests, window_s, source, where)


def arrival_rate(rate: Json) -> Json:
    """Requests per second, not yet checked; None if all arrived at once, which tools write as infinity, or at the times
    of a trace (SGLang)."""
    return None if rate in ("inf", "trace", math.inf) else rate
