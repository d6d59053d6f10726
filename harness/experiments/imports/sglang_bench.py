"""`sglang.bench_serving`: appends one object per run to a JSONL file.

With --output-details it has lists with one value per request: `input_lens`, `output_lens`, `ttfts`, `itls`,
`generated_texts`, `errors`; no file contains the start or end times of requests. The tool's native backends divide the
gap before a chunk by the chunk's tokens and write it once for each of them. `server_info` comes from the server.
`accept_length` is a mean since the server started, including forwards without drafts: it does not describe a run and is
never used as a figure here.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    file, notes = lists_of(raw, _File, where, ADVICE)
    if is_number(length := raw.get("accept_length")) and length > 0:
        notes.append(f"SGLang's own accept_length {length:.3f}: since its server started, not for this run")
    is_smeared = raw.get("backend") in _SMEARED
    rows = rows_of(file, where) if file is not None else []
    requests = [_request(row, is_smeared) for row in rows]
    if file is not None:
        check_totals(raw, file.duration, rows, requests, where)
    return Result(
        tool=TOOL,
        label=str(raw.get("tag") or ""),
        requests=requests,
        meta=_meta(raw, where),
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
    server = raw.get("server_info")
    server = server if isinstance(server, Mapping) else {}
    algorithm = server.get("speculative_algorithm")
    is_chain = server.get("speculative_eagle_topk") == 1
    fields: dict[str, Json] = {
        "model": server.get("served_model_name") or server.get("model_path"),
        "engine": "sglang" if server else None,
        "engine_version": server.get("version"),
        "strategy": algorithm.lower() if isinstance(algorithm, str) else None,
        "num_speculative_tokens": server.get("speculative_num_steps") if algorithm and is_chain else None,
        "dataset": raw.get("dataset_name"),
        "max_concurrency": raw.get("max_concurrency"),
        "request_rate": arrival_rate(raw.get("request_rate")),
    }
    return converted(fields, Meta, where, "server_info is not SGLang's")
