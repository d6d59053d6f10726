"""Our engine's side of benchmarks/arrivals_race.py: `no-spec` and the chain with K drafts while requests come and go.

    PYTHONPATH=.ns python3 benchmarks/arrivals_ours.py SHAPE ACCEPTANCE_LENGTH REQUESTS K/LOAD ... \\
        --graph-mixed full --attention flash-attention --max-num-batched-tokens 2048 --mixed-chunk-size 512

Random bf16 weights, greedy, sync=none, decode rounds in one graph, pages of 16. Before engines are timed, greedy
outputs with real acceptance are compared with the eager `no-spec` engine's, as decode_ours.py does: 48 prompts through
8 slots, in chunks of at most 128 tokens (captured mixed steps with decodes beside prompts) and of the timed size.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch
from arrivals import MAX_MODEL_LEN, MAX_NUM_SEQS, Requests, answer, warm_up, worker_arguments
from decode_ours import NUM_CHECKED_TOKENS, check, make_engine
from race_workers import say

from specbench.harness.engines.native.build import usual_mixed_chunk
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.core.target_cache import CachePool
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.registry import ATTENTION_BACKENDS, lookup
from specbench.harness.spec.plans import PLANS, GraphPlan
from specbench.kernels.attention.base import AttentionBackend

CHECKED_PROMPTS, CHECKED_SLOTS, CHECKED_CHUNK = 48, 8, 128


@dataclass(frozen=True, slots=True)
class Setup:
    """How engines run; `reference`: attention of the eager engine whose outputs are expected, by default Triton's."""

    graph: GraphPlan
    attention: AttentionBackend
    num_batched: int
    mixed_chunk_size: int  # 0: the model's
    reference: AttentionBackend | None = None
    max_num_seqs: int = MAX_NUM_SEQS

    def mixed_chunk(self, target: LlamaModel, k: int) -> int:
        return self.mixed_chunk_size or usual_mixed_chunk(target.config, k)


class Ours:
    """One engine as the shared loop drives it."""

    def __init__(self, engine: Engine):
        self.config = engine.config
        self._engine = engine

    def submit(self, index: int, prompt_ids: list[int], max_tokens: int) -> None:
        self._engine.add(Request(index, tuple(prompt_ids), SamplingParams(max_tokens=max_tokens, seed=index)))

    def step(self) -> list[tuple[int, int, bool]]:
        ended = {request.id for request in self._engine.step()}
        rows = [(row.request_id, row.num_emitted) for row in self._engine.log.take() if row.num_emitted]
        # Rows of two rounds may come at once; a request has ended with its last.
        last = {index: place for place, (index, _) in enumerate(rows)}
        return [(index, num, index in ended and last[index] == place) for place, (index, num) in enumerate(rows)]

    def settle(self) -> None:
        while self._engine.has_work:
            self._engine.step()
        self._engine.log.take()


def checked(target: LlamaModel, k: int, requests: Requests, setup: Setup) -> str:
    prompts = [tuple(prompt) for prompt in requests.prompts[:CHECKED_PROMPTS]]
    max_len = max(map(len, prompts)) + NUM_CHECKED_TOKENS + 64
    slots = min(CHECKED_SLOTS, setup.max_num_seqs)
    make = partial(make_engine, target, acceptance="real", max_len=max_len)
    eager = partial(make, k=0, batch=len(prompts), graph=PLANS["none"], attention=setup.reference)
    own = dict(graph=setup.graph, attention=setup.attention, mixed_chunk_size=setup.mixed_chunk(target, k))
    timed = partial(make, k=k, batch=slots, **own)
    found = {
        most: check(target, prompts, eager, partial(timed, max_num_batched_tokens=most))
        for most in (min(CHECKED_CHUNK, setup.num_batched), setup.num_batched)
    }
    return "; ".join(f"chunks of {most}: {words}" for most, words in found.items())


def engines_of(
    target: LlamaModel, ks: Iterable[int], acceptance: float, requests: Requests, setup: Setup
) -> dict[int, Ours]:
    """Ready to be timed. They never run at the same time, so that all have one cache."""
    pool = CachePool()
    engines: dict[int, Ours] = {}
    for k in ks:
        say(f"ours: K = {k} is captured and warmed up")
        engine = make_engine(
            target,
            k,
            f"synthetic:{acceptance}",
            setup.max_num_seqs,
            MAX_MODEL_LEN,
            setup.graph,
            setup.attention,
            pool.lease(),
            max_num_batched_tokens=setup.num_batched,
            mixed_chunk_size=setup.mixed_chunk(target, k),
            num_pages=requests.num_pages,
        )
        engine.launcher.capture([SamplingMode.GREEDY])
        engines[k] = Ours(engine)
        warm_up(engines[k], requests)
    return engines


def run(args: argparse.Namespace, target: LlamaModel, setup: Setup, lines: Iterable[str]) -> None:
    requests, ks = Requests.read(args.requests), sorted({cell.k for cell in args.cells})
    checks = {}
    for k in ks:
        checks[k] = checked(target, k, requests, setup)
        say(f"ours: K = {k}, {checks[k]}")
    engines = engines_of(target, ks, args.acceptance, requests, setup)
    settings = dict(
        graph=setup.graph.described(),
        attention=getattr(getattr(setup.attention, "source", None), "name", setup.attention.name),
        max_num_batched_tokens=setup.num_batched,
        max_num_seqs=setup.max_num_seqs,
        num_pages=requests.num_pages,
        torch=torch.__version__,
        hardware=torch.cuda.get_device_name() if target.device.type == "cuda" else "cpu",
    )
    own = {k: settings | dict(mixed_chunk_size=engine.config.mixed_chunk_size) for k, engine in engines.items()}
    answer(dict(settings=own, checks=checks), engines, requests, lines)


def main() -> None:
    parser = worker_arguments(__doc__)
    parser.add_argument("--graph-mixed", choices=("none", "piecewise", "full"), default="full")
    parser.add_argument("--attention", default="flash-attention")
    parser.add_argument("--max-num-batched-tokens", type=int, default=2048)
    parser.add_argument("--mixed-chunk-size", type=int, default=0, help="0: the model's, as in `specbench run`")
    args = parser.parse_args()
    with torch.inference_mode():
        target = dummy_target(args.shape, torch.bfloat16, torch.device("cuda"))
        setup = Setup(
            graph=replace(PLANS["one"], mixed=args.graph_mixed),
            attention=lookup(ATTENTION_BACKENDS, args.attention, "attention")(),
            num_batched=args.max_num_batched_tokens,
            mixed_chunk_size=args.mixed_chunk_size,
        )
        run(args, target, setup, sys.stdin)


if __name__ == "__main__":
    main()
