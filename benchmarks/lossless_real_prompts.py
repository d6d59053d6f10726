"""Every strategy against `no-spec` over real prompts on the default model, greedy and sampled with shared noise.

    python benchmarks/lossless_real_prompts.py [--num-prompts 50] [--output-len 24] [--output FILE]

On the CPU, with the head that comes with the package and prompts that it was not trained on.

Identical, or the two tokens at the first divergence are closer than 1e-4 in the target's own fp32 logits (for sampled
requests: in logits / temperature + noise, which the shared noise decides alike).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.models.loader import load_target
from specbench.harness.engines.native.models.score import last_logits
from specbench.harness.registry import strategy_class
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.kernels.philox import uniform
from specbench.kernels.sample import gumbel_ref
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.assets.shipped_heads import shipped_head_for
from specbench.workloads.base import Workload, WorkloadRequest
from specbench.workloads.held_out import load
from specbench.workloads.tokenizer import load_tokenizer

TOLERANCE = 1e-4
WORKLOAD = "sharegpt-held-out"
BASELINE = ("no-spec", {}, "padded")
ARMS = (  # strategy, options, drafter batch
    ("ngram", {"k": "4"}, "padded"),
    ("eagle", {"k": "4"}, "padded"),
    ("eagle", {"k": "4"}, "unpadded"),
    ("naive-eagle", {"k": "1"}, "padded"),
    ("naive-eagle", {"k": "3"}, "padded"),
    ("eagle-topk", {"num_steps": "3", "topk": "3", "num_draft_tokens": "8"}, "padded"),
    ("draft-model", {"draft": "self:10", "k": "2"}, "padded"),
)
TEMPERATURES = (0.0, 0.8)
BATCH = 8
Arm = tuple[str, dict[str, str], str]


def outputs(target, arm: Arm, workload: Workload, temperature: float, output_len: int):
    name, options, drafter = arm
    config = EngineConfig(
        max_model_len=2048, max_num_seqs=BATCH, page_size=128, max_num_batched_tokens=1024, drafter=drafter
    )
    engine = Engine(config, target, strategy_class(name).of(options), TorchAttention())
    for index, prompt in enumerate(workload.prompts):
        sampling = SamplingParams(temperature=temperature, max_tokens=output_len, seed=index)
        engine.add(Request(index, prompt.token_ids, sampling))
    done: list[Request] = []
    while engine.has_work:
        done += engine.step()
    accepted = sum(row.num_accepted for row in engine.log.rows)
    return [r.output_ids for r in sorted(done, key=lambda r: r.id)], accepted


def gap(target, prompt: tuple[int, ...], before: list[int], tokens: tuple[int, int], temperature: float, seed: int):
    scores = last_logits(target, [*prompt, *before], 1)[0]
    if temperature:
        position = torch.tensor([len(prompt) + len(before)])
        scores = scores / temperature + gumbel_ref(uniform(torch.tensor([seed]), position, 0, scores.numel()))[0]
    return float((scores[tokens[0]] - scores[tokens[1]]).abs())


def compared(target, arm: Arm, reference: list, workload: Workload, temperature: float, output_len: int) -> dict:
    """One row: how many outputs are the baseline's own, and how near the tie is where one leaves it."""
    got, accepted = outputs(target, arm, workload, temperature, output_len)
    gaps = []
    for index, (prompt, a, b) in enumerate(zip(workload.prompts, reference, got, strict=True)):
        if a != b:
            first = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
            gaps.append(gap(target, prompt.token_ids, a[:first], (a[first], b[first]), temperature, index))
    return dict(
        strategy=arm[0],
        options=arm[1],
        drafter=arm[2],
        temperature=temperature,
        identical=len(got) - len(gaps),
        near_ties=[round(g, 7) for g in gaps],
        prompts=len(got),
        accepted_drafts=accepted,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-prompts", type=int, default=50)
    parser.add_argument("--output-len", type=int, default=24)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    source = resolve_model("smollm2-135m-instruct")
    head = shipped_head_for(source.sha256, source.source)
    assert head is not None
    workload = load(WorkloadRequest(name=WORKLOAD, num_prompts=args.num_prompts), load_tokenizer(source.path))
    rows = []
    with torch.inference_mode():
        target = load_target(source.path, getattr(torch, args.dtype), torch.device("cpu"))
        for temperature in TEMPERATURES:
            reference, _ = outputs(target, BASELINE, workload, temperature, args.output_len)
            for name, options, drafter in ARMS:
                options = {**options, "head": head.option} if strategy_class(name).takes_head else options
                arm = (name, options, drafter)
                rows.append(compared(target, arm, reference, workload, temperature, args.output_len))
                print(json.dumps(rows[-1]), flush=True)
    report = dict(
        workload=WORKLOAD,
        workload_sha256=workload.sha256,
        dtype=args.dtype,
        output_len=args.output_len,
        model=f"{source.source} sha256:{source.sha256}",
        rows=rows,
    )
    if args.output:
        args.output.write_text(json.dumps(report, indent=2) + "\n")
    worst = max(near for row in rows for near in [0.0, *row["near_ties"]])
    if worst > TOLERANCE:
        raise SystemExit(f"a divergence has a gap of {worst}: more than {TOLERANCE}")


if __name__ == "__main__":
    main()
