"""Result files of other benchmarks, with exactly the fields that the tools write: of vLLM 0.32's `vllm bench serve`,
SGLang 0.5.23's `bench_serving`, aiperf 0.13 and guidellm 0.8. `served` makes what happened; each tool tells it its own
way."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Served:
    """One request. Times in s of one clock; `chunks`: (when, tokens); `rounds`: (drafts, accepted)."""

    prompt: str
    num_prompt: int
    start: float
    queue: float
    chunks: list[tuple[float, int]] = field(default_factory=list)
    rounds: list[tuple[int, int]] = field(default_factory=list)
    error: str = ""

    @property
    def num_tokens(self) -> int:
        return sum(tokens for _, tokens in self.chunks)

    @property
    def first(self) -> float:
        return self.chunks[0][0]

    @property
    def last(self) -> float:
        return self.chunks[-1][0]

    @property
    def gaps(self) -> list[float]:
        return [b[0] - a[0] for a, b in zip(self.chunks, self.chunks[1:], strict=False)]


def served(
    num: int = 12, num_drafts: int = 3, step_s: float = 0.02, seed: int = 0, failed: tuple[int, ...] = ()
) -> list[Served]:
    """Requests one after another on the same prompts whatever the other arguments are. `num_drafts` 0: no speculation.
    A failed one has no output."""
    prompts, luck = random.Random(1), random.Random(f"{seed} {num_drafts} {step_s}")
    now, found = 5000.0, []
    for n in range(num):
        one = Served(f"prompt {n}", prompts.randrange(10, 90), now, luck.uniform(0.001, 0.009))
        length = prompts.randrange(20, 40)
        if n in failed:
            one.error = "boom"
            found.append(one)
            continue
        now += luck.uniform(0.05, 0.08)
        one.chunks.append((now, 1))
        while one.num_tokens < length:
            accepted = next((j for j in range(num_drafts) if luck.random() > 0.7), num_drafts)
            now += step_s * luck.uniform(0.9, 1.1)
            one.rounds += [(num_drafts, accepted)] if num_drafts else []
            one.chunks.append((now, accepted + 1))
        now += 0.001
        found.append(one)
    return found


def totals_of_rounds(requests: list[Served]) -> tuple[int, int, int, list[int]]:
    """(rounds, drafts, accepted, accepted by position)."""
    rounds = [one for request in requests for one in request.rounds]
    longest = max((drafts for drafts, _ in rounds), default=0)
    at = [sum(accepted > n for _, accepted in rounds) for n in range(longest)]
    return len(rounds), sum(drafts for drafts, _ in rounds), sum(accepted for _, accepted in rounds), at


def vllm_bench(requests: list[Served], **changes: object) -> dict:
    ok = [one for one in requests if not one.error]
    duration = max(one.last for one in ok) - min(one.start for one in ok) + 0.01
    num_rounds, num_drafts, num_accepted, at = totals_of_rounds(ok)
    raw: dict[str, object] = {
        "date": "20260102-030405",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "org/model",
        "tokenizer_id": "org/model",
        "num_prompts": len(requests),
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 1,
        "duration": duration,
        "completed": len(ok),
        "failed": len(requests) - len(ok),
        "total_input_tokens": sum(one.num_prompt for one in ok),
        "total_output_tokens": sum(one.num_tokens for one in ok),
        "request_throughput": len(ok) / duration,
        "request_goodput": None,
        "output_throughput": sum(one.num_tokens for one in ok) / duration,
        "input_lens": [one.num_prompt for one in requests],
        "output_lens": [one.num_tokens for one in requests],
        "ttfts": [0.0 if one.error else one.first - one.start for one in requests],
        "itls": [one.gaps for one in requests],
        "latencies": [0.0 if one.error else one.last - one.start for one in requests],
        "start_times": [0.0 if one.error else one.start for one in requests],
        "queue_times": [one.queue for one in requests],
        "generated_texts": [f"answer to {one.prompt}" if not one.error else "" for one in requests],
        "errors": [one.error for one in requests],
        "max_concurrent_requests": 1,
        "mean_ttft_ms": 55.5,
        "mean_tpot_ms": 9.25,
        "mean_itl_ms": 20.5,
    }
    if num_rounds:
        raw |= {
            "spec_decode_acceptance_rate": 100 * num_accepted / num_drafts,
            "spec_decode_acceptance_length": 1 + num_accepted / num_rounds,
            "spec_decode_num_drafts": num_rounds,
            "spec_decode_draft_tokens": num_drafts,
            "spec_decode_accepted_tokens": num_accepted,
            "spec_decode_per_position_acceptance_rates": [count / num_rounds for count in at],
        }
    return {name: value for name, value in (raw | changes).items() if value is not ...}


VLLM_DETAIL = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")


def without_detail(raw: dict) -> dict:
    """As `vllm bench serve` leaves it without --save-detailed."""
    return {name: value for name, value in raw.items() if name not in VLLM_DETAIL}


def sglang_bench(requests: list[Served], has_details: bool = True, **changes: object) -> dict:
    ok = [one for one in requests if not one.error]
    duration = max(one.last for one in ok) - min(one.start for one in ok)
    is_smeared = changes.get("backend", "sglang") in ("sglang", "sglang-native")
    raw: dict[str, object] = {
        "tag": None,
        "backend": "sglang",
        "dataset_name": "sharegpt",
        "request_rate": float("inf"),
        "max_concurrency": 1,
        "sharegpt_output_len": None,
        "random_input_len": 1024,
        "random_output_len": 1024,
        "random_range_ratio": 0.0,
        "server_info": {
            "model_path": "org/model",
            "served_model_name": "org/model",
            "speculative_algorithm": "EAGLE3",
            "speculative_num_steps": 3,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 4,
            "version": "0.5.23",
            "internal_states": [{"avg_spec_accept_length": 2.875}],
        },
        "duration": duration,
        "completed": len(ok),
        "total_output_tokens": sum(one.num_tokens for one in ok),
        "request_throughput": len(ok) / duration,
        "output_throughput": sum(one.num_tokens for one in ok) / duration,
        "mean_ttft_ms": 55.5,
        "mean_tpot_ms": 9.25,
        "mean_itl_ms": 9.25,
        "accept_length": 2.875,
    }
    details = {
        "input_lens": [one.num_prompt for one in requests],
        "output_lens": [one.num_tokens for one in requests],
        "ttfts": [0.0 if one.error else one.first - one.start for one in requests],
        "itls": [_smeared(one) if is_smeared else one.gaps for one in requests],
        "generated_texts": [f"answer to {one.prompt}" if not one.error else "" for one in requests],
        "errors": [one.error for one in requests],
    }
    return {
        name: value for name, value in (raw | (details if has_details else {}) | changes).items() if value is not ...
    }


def _smeared(one: Served) -> list[float]:
    gaps = zip(one.gaps, [tokens for _, tokens in one.chunks[1:]], strict=True)
    return [gap / tokens for gap, tokens in gaps for _ in range(tokens)]


def aiperf_records(requests: list[Served], has_steps: bool = True) -> list[dict]:
    return [_aiperf_record(n, one, has_steps) for n, one in enumerate(requests)]


def _aiperf_record(n: int, one: Served, has_steps: bool) -> dict:
    wall = 1_700_000_000
    start_ns = round((wall + one.start) * 1e9)
    metadata = {
        "session_num": n,
        "x_request_id": f"r{n}",
        "x_correlation_id": f"c{n}",
        "conversation_id": f"session_{n:06d}",
        "turn_index": 0,
        "credit_issued_ns": start_ns - round(one.queue * 1e9),
        "request_start_ns": start_ns,
        "request_end_ns": start_ns + (0 if one.error else round((one.last - one.start) * 1e9)),
        "worker_id": "worker_1",
        "record_processor_id": "processor_1",
        "benchmark_phase": "profiling",
        "was_cancelled": False,
        "context_overflow_skip": False,
        "agent_depth": 0,
    }
    if one.error:
        error = {"code": 500, "type": "InternalServerError", "message": one.error}
        metrics = {"error_request_count": {"value": 1, "unit": "requests"}}
        return {"metadata": metadata, "metrics": metrics, "trace_data": None, "error": error}
    metrics = {
        "request_count": {"value": 1, "unit": "requests"},
        "input_sequence_length": {"value": one.num_prompt, "unit": "tokens"},
        "output_sequence_length": {"value": one.num_tokens, "unit": "tokens"},
        "time_to_first_token": {"value": 1e3 * (one.first - one.start), "unit": "ms"},
        "request_latency": {"value": 1e3 * (one.last - one.start), "unit": "ms"},
        "inter_chunk_latency": {"value": [1e3 * gap for gap in one.gaps], "unit": "ms"},
    }
    record: dict[str, object] = {"metadata": metadata, "metrics": metrics, "trace_data": None, "error": None}
    if one.rounds:
        num_rounds, num_drafts, num_accepted, _ = totals_of_rounds([one])
        counts = [accepted for _, accepted in one.rounds]
        record["spec_decode_acceptance"] = {
            "engine": "vllm",
            "mean_acceptance_length": 1 + num_accepted / num_rounds,
            "draft_acceptance_rate": num_accepted / num_drafts,
            "acceptance_histogram": {str(j): counts.count(j) for j in sorted(set(counts))},
            "num_accepted_draft_tokens": num_accepted,
            "num_draft_tokens": num_drafts,
            "num_spec_steps": num_rounds,
            "num_spec_tokens": max(drafts for drafts, _ in one.rounds),
            "completion_tokens": one.num_tokens,
            "per_step_accepted": counts if has_steps else None,
            "per_step_drafted": [drafts for drafts, _ in one.rounds] if has_steps else None,
        }
    return record


AIPERF_TOTALS = {
    "schema_version": "1.4",
    "aiperf_version": "0.13.0",
    "benchmark_id": "b1",
    "request_throughput": {"unit": "requests/sec", "avg": 1.5},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 425.5},
    "time_to_first_token": {"unit": "ms", "avg": 55.5, "p99": 70.0, "count": 12},
    "inter_token_latency": {"unit": "ms", "avg": 9.25, "p99": 20.0, "count": 12},
    "input_config": {"models": {"items": [{"name": "org/model"}]}},
    "was_cancelled": False,
}


def guidellm_report(requests: list[Served], strategy: dict | None = None, **changes: object) -> dict:
    listed: dict[str, list[dict]] = {"successful": [], "errored": [], "incomplete": []}
    for n, one in enumerate(requests):
        listed["errored" if one.error else "successful"].append(_guidellm_request(n, one))
    benchmark = {
        "type_": "generative_benchmark",
        "config": {
            "id_": "c1",
            "run_id": "r1",
            "run_index": 0,
            "strategy": strategy or {"type_": "constant", "rate": 2.0},
            "constraints": {},
            "sample_size": None,
        },
        "metrics": {
            "request_totals": {
                "successful": len(listed["successful"]),
                "errored": len(listed["errored"]),
                "incomplete": 0,
                "total": len(requests),
            }
        },
        "requests": {**listed, "total": None},
        "warnings": [],
        **changes,
    }
    metadata = {"version": 2, "guidellm_version": "0.8.1", "python_version": "3.11", "platform": "Linux"}
    return {"metadata": metadata, "config": {}, "benchmarks": [benchmark], "conclusions": []}


def _guidellm_request(n: int, one: Served) -> dict:
    wall = 1_700_000_000.0
    timings: dict[str, float | int | None] = {
        "targeted_start": wall + one.start - one.queue,
        "queued": wall,
        "dequeued": wall,
        "resolve_start": wall + one.start,
        "request_start": None if one.error else wall + one.start,
        "first_token_iteration": None if one.error else wall + one.first,
        "last_token_iteration": None if one.error else wall + one.last,
        "token_iterations": len(one.chunks),
        "resolve_end": wall + one.start,
    }
    body = {"model": "org/model", "messages": [{"role": "user", "content": one.prompt}], "stream": True}
    request: dict[str, object] = {
        "type_": "generative_request_stats",
        "request_id": f"uuid-{n}",
        "request_args": json.dumps({"method": "POST", "stream": True, "headers": None, "body": body}),
        "output": None if one.error else f"answer to {one.prompt}",
        "info": {"request_id": f"uuid-{n}", "status": "errored", "timings": timings, "error": one.error or None},
        "input_metrics": {"text_tokens": one.num_prompt},
        "output_metrics": {"text_tokens": None if one.error else one.num_tokens},
        "response_metrics": None,
    }
    if one.rounds:
        num_rounds, num_drafts, num_accepted, _ = totals_of_rounds([one])
        counts, longest = [accepted for _, accepted in one.rounds], max(drafts for drafts, _ in one.rounds)
        request["response_metrics"] = {
            "queue_time_ms": 0.1,
            "speculative_decoding": {
                "mean_acceptance_length": 1 + num_accepted / num_rounds,
                "draft_acceptance_rate": num_accepted / num_drafts,
                "acceptance_histogram": [counts.count(j) for j in range(longest + 1)],
                "num_spec_steps": num_rounds,
                "num_accepted_draft_tokens": num_accepted,
                "num_draft_tokens": num_drafts,
                "num_spec_tokens": longest,
                "per_step_accepted": None,
                "per_step_drafted": None,
            },
        }
    return request


def write(file: Path, *objects: dict) -> Path:
    """One object, or one a line."""
    file.write_text("\n".join(json.dumps(one) for one in objects))
    return file
