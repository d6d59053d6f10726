"""Decode throughput on one H200: `no-spec` and the chain with K = 4, each in one graph with sync=none, random weights.

    PYTHONPATH=.ns python3 benchmarks/decode_h200.py llama-3.1-8b --acceptance 3.0 --output ours.json
    python3 benchmarks/decode_vllm.py llama-3.1-8b ...        (the rival, same card, same hour)

The figure is the rival's: (tokens - B) / (time of the whole batch - time of one token each), host time, five repeats.
Before an engine is timed, its greedy output with real acceptance is compared with that of the eager `no-spec` engine
(no graph, a read every round): identical, or the two tokens at the first divergence are a near-tie of the target.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from pathlib import Path

import torch

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.core.synthetic import parse_acceptance
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.engines.native.models.score import last_logits
from specbench.harness.spec.plans import PLANS
from specbench.kernels.attention.triton_attention import TritonAttention
from specbench.strategies.naive_eagle import NaiveEagle
from specbench.strategies.no_spec import NoSpec

NUM_CHECKED_TOKENS = 32
# Two logits closer than this many bf16 steps may change places when a product runs with another tiling.
NEAR_TIE_STEPS = 4


def make_engine(target: LlamaModel, k: int, acceptance: str, batch: int, max_len: int, graph: str) -> Engine:
    strategy = NaiveEagle(k=k, head="random") if k else NoSpec()
    lag = 0 if graph == "none" else 1
    config = EngineConfig(
        max_model_len=max_len,
        max_num_seqs=batch,
        max_num_batched_tokens=8192,
        page_size=16,
        graph=PLANS[graph],
        sync="single" if graph == "none" else "none",
        status_lag=lag,
    )
    return Engine(config, target, strategy, TritonAttention(), parse_acceptance(acceptance, k) if k else None)


def generate(engine: Engine, prompts: list[tuple[int, ...]], num_tokens: int) -> tuple[float, list[list[int]]]:
    """Seconds until the host has every token, and the tokens."""
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
    return seconds, [r.output_ids for r in sorted(done, key=lambda r: r.id)]


def check(target: LlamaModel, k: int, prompts: list[tuple[int, ...]], max_len: int) -> str:
    """Says how many outputs are identical; SystemExit if a divergence is not a near-tie."""
    outputs = []
    for drafts, graph in ((0, "none"), (k, "one")):
        engine = make_engine(target, drafts, "real", len(prompts), max_len, graph)
        outputs.append(generate(engine, prompts, NUM_CHECKED_TOKENS)[1])
        del engine
        gc.collect()
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


def measure(
    target: LlamaModel, k: int, length: float, batch: int, num_prompt: int, num_output: int, repeats: int
) -> dict:
    rng = random.Random(0)
    vocab = target.config.vocab_size
    prompts = [tuple(rng.randrange(10, min(40000, vocab)) for _ in range(num_prompt)) for _ in range(batch)]
    max_len = num_prompt + num_output + 64
    verdict = check(target, k, prompts, max_len)
    engine = make_engine(target, k, f"synthetic:{length}", batch, max_len, "one")
    engine.launcher.round_for(batch, SamplingMode.GREEDY)
    generate(engine, prompts, 16)
    prefill_s = statistics.median(generate(engine, prompts, 1)[0] for _ in range(3))
    engine.log.take()
    tps = [batch * (num_output - 1) / (generate(engine, prompts, num_output)[0] - prefill_s) for _ in range(repeats)]
    rounds = [row for row in engine.log.take() if row.kind == "decode"]
    forwards = len(rounds)
    tokens = sum(row.num_emitted for row in rounds)
    return dict(
        k=k,
        batch=batch,
        num_prompt=num_prompt,
        decode_tps=tps,
        tokens_per_forward=tokens / forwards,
        syncs_per_round=sum(r.num_syncs for r in rounds) / forwards,
        check=verdict,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shape")
    parser.add_argument("--acceptance", type=float, required=True, help="synthetic acceptance length at K = 4")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--prompts", type=int, nargs="+", default=[128, 4096])
    parser.add_argument("--output-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    rows = []
    with torch.inference_mode():
        target = dummy_target(args.shape, torch.bfloat16, torch.device("cuda"))
        for num_prompt in args.prompts:
            for batch in args.batches:
                for k in (0, 4):
                    repeats = min(args.repeats, 3) if batch * num_prompt > 100_000 else args.repeats
                    row = measure(target, k, args.acceptance, batch, num_prompt, args.output_tokens, repeats)
                    rows.append(dict(shape=args.shape, **row))
                    gc.collect()
                    torch.cuda.empty_cache()
                    print(json.dumps(rows[-1]), flush=True)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
