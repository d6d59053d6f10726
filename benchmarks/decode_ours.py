"""Our engine's side of benchmarks/decode_race.py: `no-spec` and the chain with K drafts, each in one CUDA graph.

    PYTHONPATH=.ns python3 benchmarks/decode_ours.py SHAPE[@GPUS] ACCEPTANCE_LENGTH OUTPUT_TOKENS K/BxPROMPT ...

Random bf16 weights, greedy, sync=none, our Triton attention, pages of 16. Before an engine is timed, its greedy output
with real acceptance is compared with that of the eager `no-spec` engine (no graph, a read every round): identical, or
the two tokens at the first divergence are a near-tie of the target.

One JSON line when all engines are ready; then, for each line on standard input, one with the figures of every cell.
With @GPUS this is one rank of so many: RANK says which, and they meet through the file MEETING.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from decode_timer import DecodeTimer, answer_turns
from peer_shapes import prompts_of
from race_workers import NUM_BATCHED, Cell

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.core.synthetic import parse_acceptance
from specbench.harness.engines.native.core.target_cache import CacheMemory
from specbench.harness.engines.native.models.group import ALONE, Group, join
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.engines.native.models.score import last_logits
from specbench.harness.spec.plans import PLANS, GraphPlan
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.attention.triton_attention import TritonAttention
from specbench.strategies.naive_eagle import NaiveEagle
from specbench.strategies.no_spec import NoSpec

NUM_CHECKED_TOKENS = 32
# Two logits closer than this many bf16 steps may change places when a product runs with another tiling.
NEAR_TIE_STEPS = 4


def make_engine(
    target: LlamaModel,
    k: int,
    acceptance: str,
    batch: int,
    max_len: int,
    graph: GraphPlan,
    attention: AttentionBackend | None = None,
    cache_memory: CacheMemory | None = None,
    **sizes: Any,
) -> Engine:
    """Nothing waits for the host unless all is eager. `sizes`: other fields of the engine's configuration."""
    strategy = NaiveEagle(k=k, head="random") if k else NoSpec()
    is_eager = graph == PLANS["none"]
    config = EngineConfig(
        max_model_len=max_len,
        max_num_seqs=batch,
        page_size=16,
        graph=graph,
        sync="single" if is_eager else "none",
        status_lag=0 if is_eager else 1,
        **{"max_num_batched_tokens": NUM_BATCHED, **sizes},
    )
    forced = parse_acceptance(acceptance, k) if k else None
    return Engine(config, target, strategy, attention or TritonAttention(), forced, cache_memory=cache_memory)


def generate(engine: Engine, prompts: list[tuple[int, ...]], num_tokens: int) -> tuple[float, list[list[int]]]:
    """Seconds until the host has every token, and the tokens."""
    if engine.target.device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for index, prompt in enumerate(prompts):
        engine.add(Request(index, prompt, SamplingParams(max_tokens=num_tokens, seed=index)))
    done: list[Request] = []
    while len(done) < len(prompts):
        done += engine.step()
    seconds = time.perf_counter() - start
    while engine.has_work:
        engine.step()
    engine.log.take()
    return seconds, [r.output_ids for r in sorted(done, key=lambda r: r.id)]


def check(target: LlamaModel, prompts: list[tuple[int, ...]], *engines: Callable[[], Engine]) -> str:
    """How many outputs of two engines, each made when it is needed, are identical. SystemExit if a divergence is not a
    near-tie."""
    outputs = []
    for make in engines:
        engine = make()
        outputs.append(generate(engine, prompts, NUM_CHECKED_TOKENS)[1])
        del engine
        gc.collect()
        if target.device.type == "cuda":  # other engines share the card
            torch.cuda.empty_cache()
    near_ties = 0
    for prompt, expected, got in zip(prompts, *outputs, strict=True):
        if expected == got:
            continue
        first = next(i for i, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b)
        logits = last_logits(target, [*prompt, *expected[:first]], 1)[0]
        gap = float((logits[expected[first]] - logits[got[first]]).abs())
        step = float(logits.abs().max()) * torch.finfo(torch.bfloat16).eps
        if gap > NEAR_TIE_STEPS * step:
            raise SystemExit(
                f"correctness: outputs diverge at token {first} with a logit gap of {gap:.3f}; nothing is timed"
            )
        near_ties += 1
    return f"{len(prompts) - near_ties} of {len(prompts)} identical, {near_ties} diverge at a near-tie"


class Timed:
    """One cell's engine, ready to be timed."""

    def __init__(self, target: LlamaModel, cell: Cell, acceptance: float, num_tokens: int):
        self.prompts = prompts_of(min(40000, target.config.vocab_size), cell)
        max_len = cell.prompt + num_tokens + 64

        def engine(k: int, acceptance: str, graph: str) -> Engine:
            return make_engine(target, k, acceptance, cell.batch, max_len, PLANS[graph])

        eager, captured = partial(engine, 0, "real", "none"), partial(engine, cell.k, "real", "one")
        self.check = check(target, self.prompts, eager, captured)
        self.engine = engine(cell.k, f"synthetic:{acceptance}", "one")
        self.engine.launcher.round_for(cell.batch, SamplingMode.GREEDY)
        self.timer = DecodeTimer(self.generate, cell.batch, num_tokens, target.group.agree)

    def generate(self, tokens: int) -> float:
        return generate(self.engine, self.prompts, tokens)[0]


def group_of(num_ranks: int) -> Group:
    if num_ranks == 1:
        return ALONE
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    return join(rank, num_ranks, Path(os.environ["MEETING"]), torch.device("cuda", rank), torch.bfloat16, "auto")


def main() -> None:
    (shape, _, num_ranks), acceptance, num_tokens = sys.argv[1].partition("@"), float(sys.argv[2]), int(sys.argv[3])
    with torch.inference_mode():
        group = group_of(int(num_ranks or 1))
        target = dummy_target(shape, torch.bfloat16, torch.device("cuda", torch.cuda.current_device()), group=group)
        cells = [Timed(target, Cell.parse(word), acceptance, num_tokens) for word in sys.argv[4:]]
        gc.collect()
        gc.freeze()
        print(json.dumps(dict(ready=shape, checks=[cell.check for cell in cells])), flush=True)
        answer_turns([cell.timer for cell in cells])


if __name__ == "__main__":
    main()
