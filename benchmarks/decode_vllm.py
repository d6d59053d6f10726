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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decode_race import Cell

if TYPE_CHECKING:
    from vllm.entrypoints.llm import LLM

os.environ.update(
    VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_LOGGING_LEVEL="ERROR"
)
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

SHAPES = {
    "llama-3.1-8b": dict(
        hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
        vocab_size=128256, rope_theta=5e5, num_hidden_layers=32, tie_word_embeddings=False, draft_vocab_size=32000,
    ),
    "smollm2-135m": dict(
        hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3, head_dim=64,
        vocab_size=49152, rope_theta=1e5, num_hidden_layers=30, tie_word_embeddings=True, draft_vocab_size=16384,
    ),
    "qwen2.5-1.5b": dict(
        hidden_size=1536, intermediate_size=8960, num_attention_heads=12, num_key_value_heads=2, head_dim=128,
        vocab_size=151936, rope_theta=1e6, num_hidden_layers=28, tie_word_embeddings=True, draft_vocab_size=32000,
    ),
}  # fmt: skip
COMMON = dict(
    model_type="llama", max_position_embeddings=8192, rms_norm_eps=1e-5, torch_dtype="bfloat16", bos_token_id=1,
    eos_token_id=2, hidden_act="silu",
)  # fmt: skip


def write_configs(shape: str) -> tuple[str, str]:
    values = dict(SHAPES[shape])
    draft_vocab = values.pop("draft_vocab_size")
    target = {**COMMON, **values, "architectures": ["LlamaForCausalLM"]}
    draft = {
        **COMMON, **values, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1,
        "draft_vocab_size": draft_vocab, "tie_word_embeddings": False,
    }  # fmt: skip
    paths = []
    for name, content in (("target", target), ("draft", draft)):
        path = Path(f"/tmp/vllm_{name}_{shape}")
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(content))
        paths.append(str(path))
    return paths[0], paths[1]


def num_cached(cells: list[Cell], num_tokens: int) -> int:
    """Tokens of the largest cell, and the drafts beyond them."""
    return max(cell.batch * (cell.prompt + num_tokens + 64) for cell in cells)


def kv_bytes(shape: str, num_cached: int, num_ranks: int = 1) -> int:
    """A GPU's share of the keys and values of so many tokens, with a tenth to spare so that nothing is preempted."""
    values = SHAPES[shape]
    num_values = 2 * values["num_hidden_layers"] * values["num_key_value_heads"] * values["head_dim"]
    return int(1.1 * 2 * num_values * num_cached / num_ranks) + (1 << 30)  # bf16; the drafter's layer is in the 1 GiB


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
        tensor_parallel_size=num_gpus,
        compilation_config=dict(cudagraph_capture_sizes=sizes, max_cudagraph_capture_size=max(sizes)),
    )  # fmt: skip
    from vllm import SamplingParams

    rng = random.Random(0)

    def generate(cell: Cell, tokens: int) -> float:
        prompts = [
            {"prompt_token_ids": [rng.randrange(10, 40000) for _ in range(cell.prompt)]} for _ in range(cell.batch)
        ]
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        return time.perf_counter() - start

    def tps(cell: Cell) -> float:
        prefill_s = generate(cell, 1)
        return cell.batch * (num_tokens - 1) / (generate(cell, num_tokens) - prefill_s)

    for cell in cells:
        for tokens in (16, 1, num_tokens):
            generate(cell, tokens)
    print(json.dumps(dict(ready=[str(cell) for cell in cells])), flush=True)
    for _ in sys.stdin:
        print(json.dumps(dict(figures=[tps(cell) for cell in cells])), flush=True)


if __name__ == "__main__":
    main()
