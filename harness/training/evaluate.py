"""Acceptance of a head over a workload, measured with the engine, as a user of the head would see it.

Small models repeat themselves, which inflates acceptance. Every figure therefore comes with the share of looping
outputs and the acceptance without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.drive import request_row
from specbench.harness.engines.native.models.heads import is_one_pass
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.registry import head_strategy
from specbench.harness.stats.spread import ratio_interval
from specbench.harness.store.rows import RequestRow
from specbench.workloads.base import Workload

from .engines import throughput_engine
from .loops import is_loop

_NUM_SEQS = 64  # most prompts in flight


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """Acceptance length (accepted drafts + 1 per round) with the ends of its 95 % bootstrap interval over prompts.

    marginal[i]: rounds that accepted draft i+1; conditional[i]: the same among rounds that accepted draft i.
    """

    num_prompts: int
    length: float
    low: float | None
    high: float | None
    marginal: tuple[float, ...]
    conditional: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadEvaluation:
    """One workload at one temperature. `without_loops` is None if every output loops."""

    workload: str
    rule: str
    workload_sha256: str
    k: int
    temperature: float
    num_output_tokens: int
    num_loops: int
    all: Acceptance
    without_loops: Acceptance | None


@dataclass(frozen=True, slots=True)
class Outputs:
    """What an evaluation generated: finished requests by id, and every round with drafts."""

    requests: dict[int, Request]
    rounds: pd.DataFrame  # request, accepted


def answers(
    head_dir: Path,
    target: LlamaModel,
    workload: Workload,
    *,
    stop_token_ids: tuple[int, ...],
    k: int,
    temperature: float = 0.0,
    seed: int = 0,
    on_done: Callable[[RequestRow], None] = lambda row: None,
) -> Outputs:
    """Greedy (temperature 0) or sampled, chain of `k` drafts over every prompt of the workload; `on_done` is called for
    each one that has ended."""
    prompts = [(p.token_ids, p.max_tokens) for p in workload.prompts]
    return generate_with_head(head_dir, target, prompts, stop_token_ids, k, temperature, seed, _NUM_SEQS, on_done)


def evaluation_of(workload: Workload, done: Outputs, k: int, temperature: float) -> HeadEvaluation:
    """Of what was generated for the prompts of the workload."""
    loops = {number for number, request in done.requests.items() if is_loop(request.output_ids)}
    others = set(done.requests) - loops
    return HeadEvaluation(
        workload=workload.name,
        rule=workload.rule,
        workload_sha256=workload.sha256,
        k=k,
        temperature=temperature,
        num_output_tokens=sum(len(r.output_ids) for r in done.requests.values()),
        num_loops=len(loops),
        all=acceptance_of(done.rounds, k, done.requests),
        without_loops=acceptance_of(done.rounds, k, others) if others else None,
    )


def pooled(parts: Sequence[Outputs]) -> Outputs:
    """The outputs of several workloads, with requests numbered throughout."""
    requests: dict[int, Request] = {}
    rounds = []
    for part in parts:
        rounds.append(part.rounds.assign(request=part.rounds["request"] + len(requests)))
        requests |= {number + len(requests): request for number, request in part.requests.items()}
    return Outputs(requests, pd.concat(rounds, ignore_index=True))


@torch.inference_mode()
def generate_with_head(
    head_dir: Path,
    target: LlamaModel,
    prompts: Sequence[tuple[tuple[int, ...], int]],
    stop_token_ids: tuple[int, ...],
    k: int,
    temperature: float,
    seed: int,
    max_num_seqs: int,
    on_done: Callable[[RequestRow], None] = lambda row: None,
) -> Outputs:
    """Runs (prompt ids, most output tokens) pairs through the strategy of the head's kind."""
    max_model_len = max(len(ids) + max_tokens for ids, max_tokens in prompts) + 1
    strategy = head_strategy(is_one_pass(head_dir))
    options = {"k": str(k), "head": str(head_dir)}
    num_seqs = min(max_num_seqs, len(prompts))
    engine = throughput_engine(target, strategy, options, max_num_seqs=num_seqs, max_model_len=max_model_len)
    for number, (ids, max_tokens) in enumerate(prompts):
        sampling = SamplingParams(
            temperature=temperature,
            max_tokens=max_tokens,
            stop_token_ids=stop_token_ids,
            seed=(seed * 1_000_003 + number) & 0x7FFF_FFFF_FFFF_FFFF,
        )
        engine.add(Request(number, ids, sampling))
    done: dict[int, Request] = {}
    while engine.has_work:
        for request in engine.step():
            done[request.id] = request
            on_done(request_row(request, str(request.id)))
    rows = [(r.request_id, r.num_accepted) for r in engine.log.rows if not r.is_prefill and r.num_proposed]
    return Outputs(done, pd.DataFrame(rows, columns=["request", "accepted"], dtype="int64"))


def acceptance_of(rounds: pd.DataFrame, k: int, requests: Collection[int]) -> Acceptance:
    """Pooled over the rounds of these requests."""
    kept = rounds[rounds["request"].isin(list(requests))]
    accepted = kept["accepted"]
    by_prompt = kept.groupby("request")["accepted"].agg(["sum", "count"])
    interval = ratio_interval(by_prompt["sum"], by_prompt["count"])
    reached = [int((accepted >= i).sum()) for i in range(k + 1)]
    return Acceptance(
        num_prompts=len(requests),
        length=1 + float(accepted.mean()) if len(accepted) else 1.0,
        low=None if interval is None else 1 + interval.low,
        high=None if interval is None else 1 + interval.high,
        marginal=tuple(count / max(reached[0], 1) for count in reached[1:]),
        conditional=tuple(b / a if a else None for a, b in zip(reached, reached[1:], strict=False)),
    )
