"""CPU, batch 1, default model: `no-spec` against transformers' greedy `generate` on the same weights and prompts.

    python benchmarks/cpu_vs_transformers.py [--num-prompts 4] [--output-len 64] [--num-repeats 5]

Arms alternate prompt by prompt; a figure is time per output token of whole requests, prefill included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.models.loader import load_target
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.strategies.no_spec import NoSpec
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.base import WorkloadRequest
from specbench.workloads.sharegpt import load
from specbench.workloads.tokenizer import load_tokenizer


def ours(engine: Engine, prompt: tuple[int, ...], output_len: int) -> tuple[float, list[int]]:
    engine.add(Request(0, prompt, SamplingParams(max_tokens=output_len)))
    start = time.perf_counter()
    done: list[Request] = []
    while engine.has_work:
        done += engine.step()
    return (time.perf_counter() - start) / output_len, done[0].output_ids


def theirs(model, prompt: tuple[int, ...], output_len: int) -> tuple[float, list[int]]:
    ids = torch.tensor([prompt])
    start = time.perf_counter()
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=output_len,
        min_new_tokens=output_len,
        pad_token_id=0,
    )
    return (time.perf_counter() - start) / output_len, out[0, len(prompt) :].tolist()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-prompts", type=int, default=4)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--num-repeats", type=int, default=5)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    from transformers import AutoModelForCausalLM

    source = resolve_model("smollm2-135m-instruct")
    workload = load(WorkloadRequest(name="sharegpt", num_prompts=args.num_prompts), load_tokenizer(source.path))
    result = dict(threads=torch.get_num_threads(), torch=torch.__version__, workload_sha256=workload.sha256, dtypes={})
    for name in args.dtypes:
        dtype = getattr(torch, name)
        model = AutoModelForCausalLM.from_pretrained(source.path, dtype=dtype, trust_remote_code=False)
        config = EngineConfig(max_model_len=2048, max_num_seqs=1, page_size=128)
        with torch.inference_mode():
            engine = Engine(config, load_target(source.path, dtype, torch.device("cpu")), NoSpec(), TorchAttention())
            times: dict[str, list[float]] = {"specbench": [], "transformers": []}
            equal = 0
            for repeat in range(args.num_repeats + 1):  # the first warms up
                for prompt in workload.prompts:
                    a, ours_ids = ours(engine, prompt.token_ids, args.output_len)
                    b, theirs_ids = theirs(model, prompt.token_ids, args.output_len)
                    if repeat:
                        times["specbench"].append(a)
                        times["transformers"].append(b)
                        equal += ours_ids == theirs_ids
        ratios = sorted(b / a for a, b in zip(times["specbench"], times["transformers"], strict=True))
        row = {k: dict(median_ms=1e3 * statistics.median(v), min_ms=1e3 * min(v)) for k, v in times.items()}
        row |= dict(ratio_median=statistics.median(ratios), ratio_min=ratios[0], ratio_max=ratios[-1])
        row |= dict(equal_outputs=f"{equal} of {len(ratios)}")
        result["dtypes"][name] = row
        print(name, json.dumps(row), flush=True)
    if args.output:
        args.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
