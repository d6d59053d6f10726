"""Traces of vLLM's own rounds, for `specbench profile import`: which model runner, which profiler, as arguments.

EAGLE-3 with K = 4 and acceptance forced to 2.5 tokens a round, random weights of SmolLM2-135M's shape, one request:

    nsys profile -t cuda,nvtx -s none --cpuctxsw=none --cuda-graph-trace=node --capture-range=cudaProfilerApi \\
        --capture-range-end=stop -o runner1 --export=sqlite python benchmarks/vllm_trace.py 1 cuda
    python benchmarks/vllm_trace.py 1 torch        # writes traces/runner1/*.json.gz

vLLM's first model runner names its phases; the second, the default of 0.26 for this model, names steps only.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from peer_shapes import write_configs

NUM_DRAFTS, NUM_TOKENS = 4, 48


def main(runner: str, tool: str) -> None:
    """`runner`: 1 or 2; `tool`: cuda (ranges for nsys) or torch (vLLM writes the trace itself)."""
    folder = Path(f"traces/runner{runner}").absolute()
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_USE_FLASHINFER_SAMPLER="0",
        VLLM_LOGGING_LEVEL="WARNING",
        VLLM_USE_V2_MODEL_RUNNER=str(int(runner == "2")),
        VLLM_NVTX_SCOPES_FOR_PROFILING=str(int(tool == "cuda")),
        VLLM_CUSTOM_SCOPES_FOR_PROFILING=str(int(tool == "torch")),
    )
    import torch
    from vllm import LLM, SamplingParams

    target, draft = write_configs("smollm2-135m")
    more = {"torch_profiler_dir": str(folder), "torch_profiler_with_stack": False} if tool == "torch" else {}
    llm = LLM(
        model=target,
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="bfloat16",
        seed=0,
        max_model_len=1024,
        gpu_memory_utilization=0.2,
        max_num_seqs=1,
        enable_prefix_caching=False,
        compilation_config={
            "cudagraph_capture_sizes": [1, 1 + NUM_DRAFTS],
            "max_cudagraph_capture_size": 1 + NUM_DRAFTS,
        },
        speculative_config={
            "method": "eagle3",
            "model": draft,
            "num_speculative_tokens": NUM_DRAFTS,
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": 2.5,
        },
        profiler_config={"profiler": tool, **more},
    )
    drawn = random.Random(0)
    sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, detokenize=False)

    def generate() -> None:
        prompt = {"prompt_token_ids": [drawn.randrange(10, 40_000) for _ in range(64)]}
        llm.generate([prompt], sampling, use_tqdm=False)

    generate()
    generate()
    torch.cuda.synchronize()
    llm.start_profile()
    generate()
    torch.cuda.synchronize()
    llm.stop_profile()


if __name__ == "__main__":
    main(*sys.argv[1:])
