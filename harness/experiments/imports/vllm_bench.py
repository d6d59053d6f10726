"""`vllm bench serve --save-result`, or `--append-result`: one object per run.

With --save-detailed it has lists with one value per request: `input_lens`, `output_lens`, `ttfts`, `itls` (gaps between
chunks), `errors`, `generated_texts`; newer versions add `start_times` (client's clock, 0 if the request was never
sent), `latencies` and `queue_times` (before the client sent it). Failed requests have 0 output tokens. `spec_decode_*`
are differences of the server's counters over the run; positions are divided by all verifications.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from specbench.harness.store.directories import utc
from specbench.workloads.json_values import Json, JsonObject

from .checks import contradiction, exceeds
from .meta import Meta
from .result import Count, Drafts, Request, Result, Seconds, chunks, converted, totals
from .serving import Duration, arrival_rate, check_totals, lists_of, rows_of

TOOL = "vllm bench serve"
LOOKED_FOR = "completed, duration and model_id"
ADVICE = "make it with --save-result --save-detailed"
_ROUNDING = 0.005  # of a rate or length written with two decimals; and relative, for large ones


class _Names(msgspec.Struct, frozen=True, kw_only=True):
    model_id: str | None = None
    label: str | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    duration: Duration
    input_lens: tuple[Count, ...]
    output_lens: tuple[Count, ...]
    ttfts: tuple[Seconds, ...]
    itls: tuple[tuple[Seconds, ...] | None, ...]
    errors: tuple[str | None, ...] | None = None
    start_times: tuple[Seconds, ...] | None = None
    latencies: tuple[Seconds, ...] | None = None
    queue_times: tuple[Seconds, ...] | None = None
    generated_texts: tuple[str, ...] | None = None


class _Drafts(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: f"spec_decode_{name}"):
    num_drafts: Count
    draft_tokens: Count
    accepted_tokens: Count
    per_position_acceptance_rates: tuple[Annotated[float, msgspec.Meta(ge=0, le=1)], ...] = ()
    acceptance_length: Annotated[float, msgspec.Meta(ge=0)] | None = None
    acceptance_rate: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None


def is_it(raw: JsonObject) -> bool:
    return {"completed", "duration", "model_id"} <= raw.keys()


def read(raw: JsonObject, where: str) -> Result:
    names = converted(raw, _Names, where, ADVICE)
    file, notes = lists_of(raw, _File, where, ADVICE)
    if file is not None and file.latencies is None:
        notes.append("end of a request: ttft + sum of itls, since the file has no latencies")
    fields: dict[str, Json] = {
        "model": names.model_id or None,
        "max_concurrency": raw.get("max_concurrency"),
        "request_rate": arrival_rate(raw.get("request_rate")),
    }
    meta = converted(fields, Meta, where)
    rows = rows_of(file, where) if file is not None else []
    requests = [_request(row) for row in rows]
    if file is not None:
        _check_latencies(rows, where)
        check_totals(raw, file.duration, meta.max_concurrency, rows, requests, where)
    drafts = _drafts(raw, where)
    if drafts is not None and (reason := _why_no_positions(drafts)):
        notes.append(f"no acceptance by position: {reason}")
    return Result(
        tool=TOOL,
        label=names.label or "",
        requests=requests,
        meta=meta,
        duration_s=file.duration if file is not None else 0.0,
        drafts=drafts,
        own=totals(raw),
        notes=notes,
        started_utc=_started(raw),
    )


def _request(row: Mapping[str, Any]) -> Request:
    ttft_s, gaps_s, num_tokens = row["ttfts"], row["itls"] or (), row["output_lens"]
    error = row.get("errors") or ("" if num_tokens else "no output")
    if error:
        return Request(
            num_prompt_tokens=row["input_lens"],
            num_output_tokens=0,
            start_s=row.get("start_times") or None,  # 0: it was never sent
            queue_s=row.get("queue_times"),
            finish="error",
            error=error,
        )
    return Request(
        num_prompt_tokens=row["input_lens"],
        num_output_tokens=num_tokens,
        start_s=row.get("start_times") or None,  # 0: not recorded
        ttft_s=ttft_s,
        # Older versions take the time of a single chunk twice, so its end can be some µs before its TTFT.
        e2e_s=max(row.get("latencies", ttft_s + sum(gaps_s)), ttft_s),
        chunks=chunks(ttft_s, gaps_s),
        queue_s=row.get("queue_times"),
        text=row.get("generated_texts"),
    )


def _drafts(raw: JsonObject, where: str) -> Drafts | None:
    if raw.get("spec_decode_num_drafts") is None:
        return None
    counters = converted(raw, _Drafts, where, "vLLM writes all of its counters, or none")
    _check_drafts(counters, where)
    return Drafts(
        num_rounds=counters.num_drafts,
        num_tokens=counters.draft_tokens,
        num_accepted=counters.accepted_tokens,
        by_position=counters.per_position_acceptance_rates,
    )


def _check_drafts(told: _Drafts, where: str) -> None:
    """ValueError for figures that contradict the counters: a wrong one would be shown, or hide those that are right."""
    rates = told.per_position_acceptance_rates
    num_rounds, num_tokens, num_accepted = told.num_drafts, told.draft_tokens, told.accepted_tokens
    if num_accepted > num_tokens:
        raise contradiction(
            where, f"spec_decode_accepted_tokens is {num_accepted}", f"spec_decode_draft_tokens is {num_tokens}"
        )
    if not num_rounds and num_tokens:
        raise contradiction(where, "spec_decode_num_drafts is 0", f"spec_decode_draft_tokens is {num_tokens}")
    each = num_accepted / num_rounds if num_rounds else 0.0
    rate = 100 * num_accepted / num_tokens if num_tokens else 0.0
    by_position = "spec_decode_per_position_acceptance_rates"
    for name, value, counted, num in (
        ("spec_decode_acceptance_length is", told.acceptance_length, 1 + each if num_rounds else 0.0, 1),
        ("spec_decode_acceptance_rate is", told.acceptance_rate, rate, 1),
        (f"{by_position} add up to", sum(rates) if rates else None, each, len(rates)),
    ):
        if value is not None and not math.isclose(value, counted, rel_tol=_ROUNDING, abs_tol=num * _ROUNDING):
            raise contradiction(where, f"{name} {value:.6g}", f"the counters give {counted:.6g}")
    if list(rates) != sorted(rates, reverse=True):
        raise ValueError(f"{where}: {by_position}: {list(rates)} is not allowed; allowed: none above the one before it")
    if rates and num_tokens > num_rounds * len(rates):
        raise contradiction(
            where,
            f"{by_position} has {len(rates)} positions",
            f"the counters give {num_tokens / num_rounds:.6g} drafts per verification",
        )


def _why_no_positions(drafts: Drafts) -> str:
    """Why acceptance by position does not follow from the file's rates; empty if it does, or if there are none."""
    num_positions = len(drafts.by_position)
    if num_positions and drafts.num_tokens != drafts.num_rounds * num_positions:
        return "verifications had different numbers of drafts"
    counts = [round(rate * drafts.num_rounds) for rate in drafts.by_position]
    return "its rates are rounded" if counts and sum(counts) != drafts.num_accepted else ""


def _check_latencies(rows: Sequence[Mapping[str, Any]], where: str) -> None:
    for n, row in enumerate(rows):
        if "latencies" in row and row["output_lens"] and not row.get("errors"):
            last_s = row["ttfts"] + sum(row["itls"] or ())
            if exceeds(last_s, row["latencies"]):
                raise contradiction(
                    where, f"latencies[{n}] is {row['latencies']:.4g} s", f"ttft and itls add up to {last_s:.4g} s"
                )


def _started(raw: JsonObject) -> str:
    """When the client started, by its own clock, without a time zone; empty (the time of the import) if unknown."""
    try:
        return utc(datetime.strptime(str(raw.get("date")), "%Y%m%d-%H%M%S"))
    except ValueError:
        return ""
