"""Every strategy against `no-spec` over real prompts on the default model, greedy and sampled with shared noise.

    python benchmarks/lossless_real_prompts.py [--num-prompts 50] [--output-len 48] [--output FILE]

Identical, or the two tokens at the first divergence are closer than 1e-4 in the target's own fp32 logits (for sampled
requests: in logits / temperature + noise, which the shared noise decides alike).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from specbench.harness.engine.config import EngineConfig
from specbench.harness.engine.engine import Engine
from specbench.harness.engine.request import Request, SamplingParams
from specbench.harness.models.loader import load_target
from specbench.harness.models.score import next_token_logits
from specbench.harness.models.source import resolve_model
from specbench.harness.registry import STRATEGIES, lookup
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.kernels.philox import uniform
from specbench.kernels.sample import gumbel_ref
from specbench.workloads.base import Workload, WorkloadRequest
from specbench.workloads.sharegpt import load
from specbench.workloads.tokenizer import load_tokenizer

TOLERANCE = 1e-4
ARMS = (
    ("no-spec", {}),
    ("ngram", {"k": "4"}),
    ("eagle", {"k": "4", "head": "random"}),
    ("naive-eagle", {"k": "1", "head": "random"}),
    ("naive-eagle", {"k": "3", "head": "random"}),
)
BATCH = 8


def outputs(target, name: str, options: dict, workload: Workload, temperature: float, output_len: int):
    config = EngineConfig(max_model_len=2048, max_num_seqs=BATCH, page_size=128, max_num_batched_tokens=1024)
    engine = Engine(config, target, lookup(STRATEGIES, name, "strategy")(options), TorchAttention())
    for index, prompt in enumerate(workload.prompts):
        sampling = SamplingParams(temperature=temperature, max_tokens=output_len, seed=index)
        engine.add(Request(index, prompt.token_ids, sampling))
    done: list[Request] = []
    while engine.has_work:
        done += engine.step()
    accepted = sum(row.num_accepted for row in engine.log.rows)
    return [r.output_ids for r in sorted(done, key=lambda r: r.id)], accepted


def gap(target, prompt: tuple[int, ...], before: list[int], tokens: tuple[int, int], temperature: float, seed: int):
    scores = next_token_logits(target, [*prompt, *before])
    if temperature:
        position = torch.tensor([len(prompt) + len(before)])
        scores = scores / temperature + gumbel_ref(uniform(torch.tensor([seed]), position, 0, scores.numel()))[0]
    return float((scores[tokens[0]] - scores[tokens[1]]).abs())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-prompts", type=int, default=50)
    parser.add_argument("--output-len", type=int, default=48)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    source = resolve_model("smollm2-135m-instruct")
    workload = load(WorkloadRequest(name="sharegpt", num_prompts=args.num_prompts), load_tokenizer(source.path))
    rows, worst = [], 0.0
    with torch.inference_mode():
        target = load_target(source.path, getattr(torch, args.dtype), torch.device("cpu"))
        for temperature in (0.0, 0.8):
            reference, _ = outputs(target, *ARMS[0], workload, temperature, args.output_len)
            for name, options in ARMS[1:]:
                got, accepted = outputs(target, name, options, workload, temperature, args.output_len)
                gaps = []
                for index, (prompt, a, b) in enumerate(zip(workload.prompts, reference, got, strict=True)):
                    if a != b:
                        first = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
                        pair = (a[first], b[first])
                        gaps.append(gap(target, prompt.token_ids, a[:first], pair, temperature, index))
                worst = max([worst, *gaps])
                rows.append(
                    dict(
                        strategy=name,
                        options=options,
                        temperature=temperature,
                        identical=len(got) - len(gaps),
                        near_ties=[round(g, 7) for g in gaps],
                        prompts=len(got),
                        accepted_drafts=accepted,
                    )
                )
                print(json.dumps(rows[-1]), flush=True)
    report = dict(dtype=args.dtype, output_len=args.output_len, workload_sha256=workload.sha256, rows=rows)
    if args.output:
        args.output.write_text(json.dumps(report, indent=2) + "\n")
    if worst > TOLERANCE:
        raise SystemExit(f"a divergence has a gap of {worst}: more than {TOLERANCE}")


if __name__ == "__main__":
    main()
