"""`sglang.bench_serving`: appends one object per run to a JSONL file.

With --output-details it has lists with one value per request: `input_lens`, `output_lens`, `ttfts`, `itls`,
`generated_texts`, `errors`; no file contains the start or end times of requests. The tool's native backends divide the
gap before a chunk by the chunk's tokens and write it once for each of them. `server_info` comes from the server.
`accept_length` is a mean since the server started, including forwards without drafts: it does not describe a run and is
never used as a figure here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from specbench.harness.text import is_number
from specbench.workloads.json_values import Json, JsonObject

from .meta import Meta
from .result import Count, Request, Result, Seconds, chunks, converted, totals, unsmeared
from .serving import Duration, arrival_rate, check_totals, lists_of, rows_of

TOOL = "sglang.bench_serving"
LOOKED_FOR = "completed, duration and server_info"
ADVICE = "make it with --output-details"
_SMEARED = ("sglang", "sglang-native")  # backends


class _Names(msgspec.Struct, frozen=True, kw_only=True):
    tag: str | None = None


class _Server(msgspec.Struct, frozen=True, kw_only=True):
    served_model_name: str | None = None
    model_path: str | None = None
    version: str | None = None
    speculative_algorithm: str | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_steps: Count | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    duration: Duration
    input_lens: tuple[Count, ...]
    output_lens: tuple[Count, ...]
    ttfts: tuple[Seconds, ...]
    itls: tuple[tuple[Seconds, ...], ...]
    generated_texts: tuple[str, ...] | None = None
    errors: tuple[str | None, ...] | None = None


def is_it(raw: JsonObject) -> bool:
    return {"completed", "duration", "server_info"} <= raw.keys()


def read(raw: JsonObject, where: str) -> Result:
    names, meta = converted(raw, _Names, where), _meta(raw, where)
    file, notes = lists_of(raw, _File, where, ADVICE)
    if is_number(length := raw.get("accept_length")) and length > 0:
        notes.append(f"SGLang's own accept_length {length:.3f}: since its server started, not for this run")
    if raw.get("request_rate") == "trace":
        notes.append("requests were sent at the times of a trace")
    is_smeared = raw.get("backend") in _SMEARED
    rows = rows_of(file, where) if file is not None else []
    requests = [_request(row, is_smeared) for row in rows]
    if file is not None:
        check_totals(raw, file.duration, meta.max_concurrency, rows, requests, where)
    return Result(
        tool=TOOL,
        label=names.tag or "",
        requests=requests,
        meta=meta,
        duration_s=file.duration if file is not None else 0.0,
        own=totals(raw),
        notes=notes,
    )


def _request(row: Mapping[str, Any], is_smeared: bool) -> Request:
    ttft_s, gaps_s, num_prompt, num_tokens = row["ttfts"], row["itls"], row["input_lens"], row["output_lens"]
    error = row.get("errors") or ("" if num_tokens else "no output")
    if error:
        return Request(num_prompt_tokens=num_prompt, num_output_tokens=0, finish="error", error=error)
    seen = unsmeared(ttft_s, gaps_s, num_tokens) if is_smeared else chunks(ttft_s, gaps_s)
    return Request(
        num_prompt_tokens=num_prompt,
        num_output_tokens=num_tokens,
        ttft_s=ttft_s,
        e2e_s=seen[-1].t_s,
        chunks=seen,
        text=row.get("generated_texts"),
    )


def _meta(raw: JsonObject, where: str) -> Meta:
    given = raw.get("server_info")
    server = converted(given, _Server, f"{where}: server_info") if isinstance(given, Mapping) and given else None
    fields: dict[str, Json] = {
        "dataset": raw.get("dataset_name"),
        "max_concurrency": raw.get("max_concurrency"),
        "request_rate": arrival_rate(raw.get("request_rate")),
    }
    load = converted(fields, Meta, where)
    if server is None:
        return load
    is_chain = bool(server.speculative_algorithm) and server.speculative_eagle_topk == 1
    return replace(
        load,
        model=server.served_model_name or server.model_path,
        engine="sglang",
        engine_version=server.version,
        strategy=server.speculative_algorithm and server.speculative_algorithm.lower(),
        num_speculative_tokens=server.speculative_num_steps if is_chain else None,
    )
