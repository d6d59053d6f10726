"""vLLM's side of benchmarks/decode_race.py: random weights, forced acceptance, one process.

    PYTHONPATH=/tmp/vllm python3 benchmarks/decode_vllm.py SHAPE[@GPUS] ACCEPTANCE_LENGTH OUTPUT_TOKENS K/BxPROMPT ...

All cells have the same K, 0 for no speculation. One JSON line when the engine is ready; then, for each line on standard
input, one with the figures of every cell.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from decode_timer import DecodeTimer, answer_turns
from peer_shapes import kv_bytes, num_cached, vocabulary, write_configs
from race_workers import NUM_BATCHED, Cell

if TYPE_CHECKING:
    from vllm.entrypoints.llm import LLM

os.environ.update(
    VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_LOGGING_LEVEL="ERROR"
)
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def make_llm(shape: str, k: int, acceptance: float, **arguments: Any) -> LLM:
    """Random weights; with K > 0, EAGLE-3 with forced acceptance. `arguments`: others of vLLM's. They fix the cache's
    size: several engines share the card, so none may size its own by the memory that is free."""
    from vllm.entrypoints.llm import LLM

    target, draft = write_configs(shape)
    speculative = None
    if k:
        speculative = dict(
            method="eagle3", model=draft, num_speculative_tokens=k, rejection_sample_method="synthetic",
            synthetic_acceptance_length=acceptance,
        )  # fmt: skip
    return LLM(
        model=target, skip_tokenizer_init=True, load_format="dummy", dtype="bfloat16", gpu_memory_utilization=0.1,
        seed=0, enable_prefix_caching=False, disable_log_stats=True, speculative_config=speculative, **arguments,
    )  # fmt: skip


def main() -> None:
    (shape, _, num_ranks), acceptance, num_tokens = sys.argv[1].partition("@"), float(sys.argv[2]), int(sys.argv[3])
    num_gpus = int(num_ranks or 1)
    cells = [Cell.parse(word) for word in sys.argv[4:]]
    k, max_batch = cells[0].k, max(cell.batch for cell in cells)
    sizes = sorted({size for cell in cells for size in (cell.batch, cell.batch * (k + 1))})
    llm = make_llm(
        shape, k, acceptance, max_model_len=max(cell.prompt for cell in cells) + num_tokens + 64,
        kv_cache_memory_bytes=kv_bytes(shape, num_cached(cells, num_tokens), num_gpus), max_num_seqs=max_batch,
        tensor_parallel_size=num_gpus, max_num_batched_tokens=NUM_BATCHED,
        compilation_config=dict(cudagraph_capture_sizes=sizes, max_cudagraph_capture_size=max(sizes)),
    )  # fmt: skip
    from vllm import SamplingParams

    rng, most = random.Random(0), vocabulary(shape)

    def generate(cell: Cell, tokens: int) -> float:
        prompts = [
            {"prompt_token_ids": [rng.randrange(10, most) for _ in range(cell.prompt)]} for _ in range(cell.batch)
        ]
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        return time.perf_counter() - start

    timers = [DecodeTimer(partial(generate, cell), cell.batch, num_tokens) for cell in cells]
    print(json.dumps(dict(ready=[str(cell) for cell in cells])), flush=True)
    answer_turns(timers)


if __name__ == "__main__":
    main()
