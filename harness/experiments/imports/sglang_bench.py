"""`sglang.bench_serving`: appends one object per run to a JSONL file.

With --output-details it has lists with one value per request: `input_lens`, `output_lens`, `ttfts`, `itls`,
`generated_texts`, `errors`; no file contains the start or end times of requests. The tool's native backends divide the
gap before a chunk by the chunk's tokens and write it once for each of them. `server_info` comes from the server.
`accept_length` is a mean since the server started, including forwards without drafts: it does not describe a run and is
never used as a figure here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from specbench.harness.text import is_number
from specbench.workloads.json_values import Json, JsonObject

from .meta import Meta
from .result import Request, Result, check_lengths, chunks, converted, named, places, totals, unsmeared
from .values import Count, Duration, Seconds, arrival_rate

TOOL = "sglang.bench_serving"
LOOKED_FOR = "completed, duration and server_info"
ADVICE = "make it with --output-details"
_DETAILED = ("input_lens", "output_lens", "ttfts", "itls")
_OWN = ("output_throughput", "request_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms")
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


def read(objects: Sequence[JsonObject], where: str) -> list[Result]:
    return [_result(raw, place) for raw, place in zip(objects, places(where, len(objects)), strict=True)]


def _result(raw: JsonObject, where: str) -> Result:
    own = totals(raw)
    notes: list[str] = []
    has_detail = any(isinstance(raw.get(name), list) for name in _DETAILED)
    if not has_detail:
        notes.append(f"totals only ({ADVICE}): {named(own, _OWN)}")
    if is_number(length := raw.get("accept_length")) and length > 0:
        notes.append(f"SGLang's own accept_length {length:.3f}: since its server started, not for this run")
    file = converted(raw, _File, where, ADVICE) if has_detail else None
    return Result(
        tool=TOOL,
        label=str(raw.get("tag") or ""),
        requests=_requests(file, raw.get("backend") in _SMEARED, where) if file is not None else (),
        meta=_meta(raw, where),
        duration_s=file.duration if file is not None else 0.0,
        own=own,
        notes=notes,
    )


def _requests(file: _File, is_smeared: bool, where: str) -> list[Request]:
    lists = {name: getattr(file, name) for name in file.__struct_fields__ if name != "duration"}
    check_lengths(where, lists)
    errors, texts = file.errors or [""] * len(file.ttfts), file.generated_texts or [None] * len(file.ttfts)
    rows = zip(file.input_lens, file.output_lens, file.ttfts, file.itls, errors, texts, strict=True)
    return [
        _request(num_prompt, num_tokens, ttft_s, gaps_s, error, text, is_smeared)
        for num_prompt, num_tokens, ttft_s, gaps_s, error, text in rows
    ]


def _request(
    num_prompt: int,
    num_tokens: int,
    ttft_s: float,
    gaps_s: Sequence[float],
    error: str | None,
    text: str | None,
    is_smeared: bool,
) -> Request:
    if error or not num_tokens:
        return Request(num_prompt_tokens=num_prompt, num_output_tokens=0, finish="error", error=error or "no output")
    seen = unsmeared(ttft_s, gaps_s, num_tokens) if is_smeared else chunks(ttft_s, gaps_s)
    return Request(
        num_prompt_tokens=num_prompt,
        num_output_tokens=num_tokens,
        ttft_s=ttft_s,
        e2e_s=seen[-1].t_s,
        chunks=seen,
        text=text,
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
