"""aiperf: `profile_export.jsonl`, one object per request, and `profile_export_aiperf.json`, the totals.

A record has `metadata` (wall clock in ns: `credit_issued_ns`, when it was scheduled, and `request_start_ns`),
`metrics` with a value and a unit each (`time_to_first_token`, `request_latency` up to the last chunk with output,
`inter_chunk_latency`, `output_sequence_length`, `input_sequence_length`), `error`, and `spec_decode_acceptance` with
the acceptance of the request if the server reported it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from specbench.harness.engines.openai.reports import MAX_COUNT, SpecDecoding
from specbench.harness.store.rows import MAX_DRAFTS
from specbench.workloads.json_values import JsonObject

from .checks import contradiction, exceeds
from .meta import Meta
from .result import Count, Request, Result, Seconds, chunks, converted, named, totals

TOOL = "aiperf"
RECORDS, TOTALS = "metadata.request_start_ns and metrics", "aiperf_version and input_config"
ADVICE = "give profile_export.jsonl of --export-level records"
_OWN = ("output_token_throughput", "request_throughput", "time_to_first_token", "inter_token_latency")
_MS_PER_S, _NS_PER_S = 1e3, 1e9
_NUMBER = re.compile("0|[1-9][0-9]{0,9}")
_Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    session_num: int
    request_start_ns: _Nanoseconds
    credit_issued_ns: _Nanoseconds | None = None
    conversation_id: str | None = None
    turn_index: int | None = None
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False


class _Number(msgspec.Struct, frozen=True, kw_only=True):
    value: Seconds
    unit: str


class _Gaps(msgspec.Struct, frozen=True, kw_only=True):
    value: tuple[Seconds, ...]
    unit: str


_Metric = TypeVar("_Metric", _Number, _Gaps)


class _Metrics(msgspec.Struct, frozen=True, kw_only=True):
    time_to_first_token: _Number | None = None
    request_latency: _Number | None = None
    inter_chunk_latency: _Gaps | None = None
    input_sequence_length: _Number | None = None
    output_sequence_length: _Number | None = None


class _Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    acceptance_histogram: dict[str, Count]  # accepted drafts of a verification -> count
    num_accepted_draft_tokens: Count
    num_draft_tokens: Count
    num_spec_steps: Count
    per_step_accepted: tuple[Count, ...] | None = None
    per_step_drafted: tuple[Count, ...] | None = None


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    type: str | None = None


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Metadata
    metrics: _Metrics
    spec_decode_acceptance: _Acceptance | None = None
    error: _Error | None = None


def is_record(raw: JsonObject) -> bool:
    metadata = raw.get("metadata")
    return "metrics" in raw and isinstance(metadata, Mapping) and "request_start_ns" in metadata


def is_totals(raw: JsonObject) -> bool:
    return {"aiperf_version", "input_config"} <= raw.keys()


def read_records(objects: Sequence[JsonObject], where: str) -> list[Result]:
    advice = "not a record of aiperf 0.13"
    records = [converted(raw, _Record, f"{where}:{n}", advice) for n, raw in enumerate(objects, 1)]
    measured = [(n, one) for n, one in enumerate(records, 1) if one.metadata.benchmark_phase == "profiling"]
    if not measured:
        raise ValueError(f"{where}: all records belong to the warm-up")
    measured.sort(key=lambda pair: pair[1].metadata.session_num)
    notes = [f"{len(records) - len(measured)} warm-up records omitted"] if len(measured) < len(records) else []
    requests = [_request(one, f"{where}:{n}") for n, one in measured]
    return [Result(tool=TOOL, requests=requests, meta=Meta(), notes=notes)]


def read_totals(objects: Sequence[JsonObject], where: str) -> list[Result]:
    return [_total(raw) for raw in objects]


def _total(raw: JsonObject) -> Result:
    metrics = {name: value for name, value in raw.items() if isinstance(value, Mapping) and "unit" in value}
    own = totals({f"{name} ({metric['unit']})": metric.get("avg") for name, metric in metrics.items()})
    note = f"totals only ({ADVICE}): {named(own, [name for name in own if name.split()[0] in _OWN])}"
    return Result(tool=TOOL, requests=(), meta=Meta(), own={**totals(raw), **own}, notes=(note,))


def _request(record: _Record, where: str) -> Request:
    metadata, metrics = record.metadata, record.metrics
    num_tokens = _tokens(metrics.output_sequence_length, f"{where}: metrics.output_sequence_length")
    error = _error(record) or ("" if num_tokens else "no output")
    start_s, queued_ns = metadata.request_start_ns / _NS_PER_S, metadata.credit_issued_ns
    sent: dict[str, Any] = {
        "prompt": _prompt(metadata),
        "num_prompt_tokens": _tokens(metrics.input_sequence_length, f"{where}: metrics.input_sequence_length"),
        "start_s": start_s or None,
        "queue_s": max(metadata.request_start_ns - queued_ns, 0) / _NS_PER_S if queued_ns and start_s else None,
    }
    if error:
        return Request(**sent, num_output_tokens=0, finish="abort" if metadata.was_cancelled else "error", error=error)
    ttft = _in("ms", metrics.time_to_first_token, f"{where}: metrics.time_to_first_token")
    e2e = _in("ms", metrics.request_latency, f"{where}: metrics.request_latency")
    if e2e is None:
        raise ValueError(f"{where}: metrics: a request without error lacks request_latency")
    if ttft is None:
        raise ValueError(f"{where}: metrics: time_to_first_token is missing; make the file with --streaming")
    gaps = _in("ms", metrics.inter_chunk_latency, f"{where}: metrics.inter_chunk_latency")
    gaps_s = [gap / _MS_PER_S for gap in gaps.value] if gaps is not None else []
    last_ms = ttft.value + _MS_PER_S * sum(gaps_s)
    if gaps_s and exceeds(last_ms / _MS_PER_S, e2e.value / _MS_PER_S):
        raise contradiction(
            f"{where}: metrics",
            f"request_latency is {e2e.value:.6g} ms",
            f"time_to_first_token and inter_chunk_latency add up to {last_ms:.6g} ms",
        )
    return Request(
        **sent,
        num_output_tokens=num_tokens,
        ttft_s=ttft.value / _MS_PER_S,
        e2e_s=e2e.value / _MS_PER_S,
        chunks=chunks(ttft.value / _MS_PER_S, gaps_s) if gaps_s else (),
        speculation=_speculation(record.spec_decode_acceptance, where),
    )


def _error(record: _Record) -> str:
    if record.error is not None:
        return record.error.message or record.error.type or "failed"
    return "cancelled" if record.metadata.was_cancelled else ""


def _prompt(metadata: _Metadata) -> str:
    turn = f"/{metadata.turn_index}" if metadata.turn_index else ""
    return f"{metadata.conversation_id}{turn}" if metadata.conversation_id else ""


def _in(unit: str, metric: _Metric | None, where: str) -> _Metric | None:
    """The metric's value, which must have this unit."""
    if metric is not None and metric.unit != unit:
        raise ValueError(f"{where}: {metric.value!r} {metric.unit!r}; allowed: in {unit!r}")
    return metric


def _tokens(metric: _Number | None, where: str) -> int:
    value = _in("tokens", metric, where)
    if value is None:
        return 0
    if not value.value.is_integer() or value.value > MAX_COUNT:
        raise ValueError(f"{where}: {value.value!r} is not allowed; allowed: a whole number from 0 to {MAX_COUNT}")
    return int(value.value)


def _speculation(acceptance: _Acceptance | None, where: str) -> SpecDecoding | None:
    if acceptance is None:
        return None
    most = min(acceptance.num_draft_tokens, MAX_DRAFTS)
    counts = {}
    for name, times in acceptance.acceptance_histogram.items():
        if not _NUMBER.fullmatch(name) or int(name) > most:
            raise ValueError(
                f"{where}: spec_decode_acceptance.acceptance_histogram: {name!r} is not allowed; allowed: accepted "
                f"drafts of a verification, 0 to {most}"
            )
        counts[int(name)] = times
    return SpecDecoding(
        num_spec_steps=acceptance.num_spec_steps,
        num_draft_tokens=acceptance.num_draft_tokens,
        num_accepted_draft_tokens=acceptance.num_accepted_draft_tokens,
        acceptance_histogram=[counts.get(n, 0) for n in range(max(counts, default=-1) + 1)],
        per_step_drafted=_listed(acceptance.per_step_drafted),
        per_step_accepted=_listed(acceptance.per_step_accepted),
    )


def _listed(values: Sequence[int] | None) -> list[int] | None:
    return None if values is None else list(values)
