"""`vllm bench serve --save-result`, or `--append-result`: one object per run.

With --save-detailed it has lists with one value per request: `input_lens`, `output_lens`, `ttfts`, `itls` (gaps between
chunks), `errors`, `generated_texts`; newer versions add `start_times` (client's clock, 0 if the request was never
sent), `latencies` and `queue_times` (before the client sent it). Failed requests have 0 output tokens. `spec_decode_*`
are differences of the server's counters over the run; positions are divided by all verifications.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from specbench.harness.store.directories import utc
from specbench.workloads.json_values import Json, JsonObject

from .meta import Meta
from .result import Count, Drafts, Request, Result, Seconds, chunks, converted, totals
from .serving import Duration, arrival_rate, check_totals, lists_of, rows_of

TOOL = "vllm bench serve"
LOOKED_FOR = "completed, duration and model_id"
ADVICE = "make it with --save-result --save-detailed"


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
    rows = rows_of(file, where) if file is not None else []
    requests = [_request(row) for row in rows]
    if file is not None:
        check_totals(raw, file.duration, rows, requests, where)
    return Result(
        tool=TOOL,
        label=names.label or "",
        requests=requests,
        meta=converted(fields, Meta, where, ADVICE),
        duration_s=file.duration if file is not None else 0.0,
        drafts=_drafts(raw, where),
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
        start_s=row.get("start_times"),
        ttft_s=ttft_s,
        e2e_s=max(row.get("latencies", ttft_s + sum(gaps_s)), ttft_s),
        chunks=chunks(ttft_s, gaps_s),
        queue_s=row.get("queue_times"),
        text=row.get("generated_texts"),
    )


def _drafts(raw: JsonObject, where: str) -> Drafts | None:
    if raw.get("spec_decode_num_drafts") is None:
        return None
    counters = converted(raw, _Drafts, where, "its spec_decode fields do not match vLLM's counters")
    if counters.accepted_tokens > counters.draft_tokens:
        raise ValueError(
            f"{where}: spec_decode_accepted_tokens is {counters.accepted_tokens}, but spec_decode_draft_tokens is "
            f"{counters.draft_tokens}; allowed: a file as the benchmark wrote it"
        )
    return Drafts(
        num_rounds=counters.num_drafts,
        num_tokens=counters.draft_tokens,
        num_accepted=counters.accepted_tokens,
        by_position=counters.per_position_acceptance_rates,
    )


def _started(raw: JsonObject) -> str:
    """When the client started, by its own clock, without a time zone; empty (the time of the import) if unknown."""
    try:
        return utc(datetime.strptime(str(raw.get("date")), "%Y%m%d-%H%M%S"))
    except ValueError:
        return ""
