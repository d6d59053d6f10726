"""guidellm: `benchmarks.json`, a report with a benchmark for each load.

A benchmark has `requests` by status (successful, incomplete, errored). A request has `info.timings` (Unix time, s:
`targeted_start`, `request_start`, `first_token_iteration`, `last_token_iteration`), `input_metrics` and
`output_metrics` with `text_tokens`, `request_args` (what was sent, as JSON: the prompt), and `response_metrics`, which
contain the acceptance of the request with vLLM. The times of single chunks are not recorded. With a warm-up or
cool-down all requests are listed, but `metrics` count those between `measure_start_time` and `measure_end_time` of
`scheduler_metrics`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import msgspec

from specbench.harness.engines.openai.reports import SpecDecoding
from specbench.workloads.guarded import parse_json
from specbench.workloads.json_values import Json, JsonObject

from .checks import check_concurrency, contradiction, span_s
from .meta import Meta
from .result import Count, Request, Result, Seconds, converted

TOOL = "guidellm"
LOOKED_FOR = "metadata.guidellm_version and benchmarks"
_PROMPTS = ("messages", "prompt", "input")  # keys of a request's body
_FINISH = {"successful": "stop", "incomplete": "abort", "errored": "error"}  # finish reason by status
_NOT_ASAP = ("constant", "poisson", "trace")  # strategies whose targeted_start is an arrival


class _Timings(msgspec.Struct, frozen=True, kw_only=True):
    targeted_start: Seconds | None = None
    resolve_start: Seconds | None = None
    request_start: Seconds | None = None
    first_token_iteration: Seconds | None = None
    last_token_iteration: Seconds | None = None
    request_end: Seconds | None = None
    resolve_end: Seconds | None = None


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    timings: _Timings
    error: str | None = None


class _Usage(msgspec.Struct, frozen=True, kw_only=True):
    text_tokens: Count | None = None


class _ResponseMetrics(msgspec.Struct, frozen=True, kw_only=True):
    speculative_decoding: SpecDecoding | None = None


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    info: _Info
    input_metrics: _Usage
    output_metrics: _Usage
    request_args: str | None = None
    output: str | None = None
    response_metrics: _ResponseMetrics | None = None


class _Requests(msgspec.Struct, frozen=True, kw_only=True):
    successful: tuple[_Request, ...] = ()
    incomplete: tuple[_Request, ...] = ()
    errored: tuple[_Request, ...] = ()


class _Strategy(msgspec.Struct, frozen=True, kw_only=True):
    type_: str
    streams: Count | None = None
    rate: Seconds | None = None


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    strategy: _Strategy


class _Totals(msgspec.Struct, frozen=True, kw_only=True):
    successful: Count
    incomplete: Count
    errored: Count
    total: Count


class _Metrics(msgspec.Struct, frozen=True, kw_only=True):
    request_totals: _Totals


class _Window(msgspec.Struct, frozen=True, kw_only=True):
    measure_start_time: float
    measure_end_time: float

    def has(self, request: _Request) -> bool:
        """As the tool decides it: not all of the request need be inside."""
        at = request.info.timings
        end_s = at.resolve_end if at.request_end is None else at.request_end
        start_s = at.resolve_start if at.request_start is None else at.request_start
        if end_s is None:
            return True
        return self.measure_start_time <= end_s and (end_s if start_s is None else start_s) <= self.measure_end_time


class _Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    config: _Config
    requests: _Requests
    metrics: _Metrics
    scheduler_metrics: _Window | None = None


def is_it(raw: JsonObject) -> bool:
    metadata = raw.get("metadata")
    return "benchmarks" in raw and isinstance(metadata, Mapping) and "guidellm_version" in metadata


def read(objects: Sequence[JsonObject], where: str) -> list[Result]:
    results: list[Result] = []
    for raw in objects:
        benchmarks = raw["benchmarks"]
        if not isinstance(benchmarks, list) or not benchmarks:
            raise ValueError(
                f"{where}: benchmarks: an empty or invalid {type(benchmarks).__name__}; allowed: a list of benchmarks"
            )
        results += [_result(one, f"{where}, benchmark {n}") for n, one in enumerate(benchmarks, 1)]
    return results


def _result(raw: Json, where: str) -> Result:
    benchmark = converted(raw, _Benchmark, where, "not a benchmark of guidellm 0.8 (report version 2)")
    strategy, totals = benchmark.config.strategy, benchmark.metrics.request_totals
    by_status, notes = _measured(benchmark, where)
    listed = [(one, finish) for status, finish in _FINISH.items() for one in by_status[status]]
    if not listed:
        notes.append("totals only (to keep the requests, do not set sample_size to 0)")
    elif len(by_status["successful"]) < totals.successful:
        raise ValueError(f"{where}: has {len(listed)} of {totals.total} requests; make it without sample_size")
    requests = [_request(one, finish, strategy.type_ in _NOT_ASAP, where) for one, finish in listed]
    model = next((name for one, _ in listed if isinstance(name := _body(one).get("model"), str)), None)
    max_concurrency = 1 if strategy.type_ == "synchronous" else strategy.streams
    told = f"config.strategy.type_ is {strategy.type_} with {max_concurrency} at a time"
    check_concurrency(told, max_concurrency, requests, span_s(requests), "request_start", where)
    return Result(
        tool=TOOL,
        requests=sorted(requests, key=lambda one: one.start_s or 0.0),
        meta=Meta(model=model or None, max_concurrency=max_concurrency, request_rate=strategy.rate),
        notes=notes,
    )


def _measured(benchmark: _Benchmark, where: str) -> tuple[dict[str, list[_Request]], list[str]]:
    """The requests by status, without those of the warm-up and cool-down, and a note about them. ValueError if there
    are more than the totals count."""
    totals, window = benchmark.metrics.request_totals, benchmark.scheduler_metrics
    listed = {status: list(getattr(benchmark.requests, status)) for status in _FINISH}
    counted = {status: getattr(totals, status) for status in _FINISH}
    if all(len(listed[status]) <= counted[status] for status in _FINISH):
        return listed, []
    kept = listed
    if window is not None:
        kept = {status: [one for one in requests if window.has(one)] for status, requests in listed.items()}
    for status, requests in kept.items():
        if len(requests) > counted[status]:
            raise contradiction(
                where,
                f"metrics.request_totals.{status} is {counted[status]}",
                f"requests.{status} has {len(requests)} within the measured time",
            )
    if not any(kept.values()):
        raise ValueError(f"{where}: all requests belong to the warm-up or the cool-down")
    num_omitted = sum(len(listed[status]) - len(kept[status]) for status in _FINISH)
    return kept, [f"{num_omitted} requests of the warm-up and cool-down omitted"]


def _request(raw: _Request, finish: str, has_arrival: bool, where: str) -> Request:
    at, num_tokens = raw.info.timings, raw.output_metrics.text_tokens
    times = (at.request_start, at.first_token_iteration, at.last_token_iteration)
    start_s = at.request_start or None
    is_whole = None not in times and bool(num_tokens)
    if finish == "stop" and not is_whole:
        raise ValueError(
            f"{where}: a successful request lacks request_start, first_token_iteration, last_token_iteration or "
            "output text_tokens; make it with a streaming backend"
        )
    begin, first, last = (value or 0.0 for value in times)
    queue_s = begin - at.targeted_start if has_arrival and start_s and at.targeted_start is not None else None
    speculation = raw.response_metrics.speculative_decoding if raw.response_metrics else None
    return Request(
        prompt=_prompt(raw),
        num_prompt_tokens=raw.input_metrics.text_tokens or 0,
        num_output_tokens=(num_tokens or 0) if is_whole else 0,
        start_s=start_s,
        ttft_s=first - begin if is_whole else 0.0,
        e2e_s=last - begin if is_whole else 0.0,
        queue_s=None if queue_s is None else max(queue_s, 0.0),
        text=raw.output,
        finish=finish,
        error="" if finish == "stop" else raw.info.error or "not finished when the benchmark ended",
        speculation=speculation if finish == "stop" else None,
    )


def _body(raw: _Request) -> JsonObject:
    """The body that was sent; empty if the file does not contain it."""
    try:
        sent = parse_json(raw.request_args or "{}")
    except ValueError:
        return {}
    body = sent.get("body") if isinstance(sent, dict) else None
    return body if isinstance(body, dict) else {}


def _prompt(raw: _Request) -> str:
    """A hash of the prompt that was sent; empty if the file does not contain it."""
    prompt = [body[name] for body in (_body(raw),) for name in _PROMPTS if name in body]
    return hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:16] if prompt else ""
