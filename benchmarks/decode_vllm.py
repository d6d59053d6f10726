"""vLLM 0.26's decode throughput on random weights with forced acceptance: the rival of benchmarks/decode_h200.py.

    python3 benchmarks/decode_vllm.py SHAPE K ACCEPTANCE_LENGTH B1,B2 PROMPT1,PROMPT2 OUTPUT_TOKENS

K = 0 means no speculation.

Prints one JSON line a cell: decode tokens per second of each repeat, (tokens - B) / (time - time of one token each).
The environment variable VLLM_ENABLE_V1_MULTIPROCESSING chooses whether the engine runs in this process.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

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


def main() -> None:
    shape, k, length = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    batches, num_prompts = ([int(x) for x in word.split(",")] for word in sys.argv[4:6])
    num_output = int(sys.argv[6])
    from vllm import SamplingParams
    from vllm.entrypoints.llm import LLM

    target, draft = write_configs(shape)
    speculative = None
    if k:
        speculative = dict(
            method="eagle3", model=draft, num_speculative_tokens=k, rejection_sample_method="synthetic",
            synthetic_acceptance_length=length,
        )  # fmt: skip
    sizes = sorted({size for batch in batches for size in (batch, batch * (k + 1))})
    llm = LLM(
        model=target, skip_tokenizer_init=True, load_format="dummy", dtype="bfloat16",
        max_model_len=max(num_prompts) + num_output + 64, gpu_memory_utilization=0.8, max_num_seqs=max(batches), seed=0,
        enable_prefix_caching=False, disable_log_stats=True, speculative_config=speculative,
        compilation_config=dict(cudagraph_capture_sizes=sizes, max_cudagraph_capture_size=max(sizes)),
    )  # fmt: skip
    rng = random.Random(0)

    def generate(batch: int, num_prompt: int, num_tokens: int) -> float:
        prompts = [{"prompt_token_ids": [rng.randrange(10, 40000) for _ in range(num_prompt)]} for _ in range(batch)]
        params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        return time.perf_counter() - start

    for num_prompt in num_prompts:
        for batch in batches:
            generate(batch, num_prompt, 16)
            prefill_s = sorted(generate(batch, num_prompt, 1) for _ in range(3))[1]
            repeats = 3 if batch * num_prompt > 100_000 else 5
            tps = []
            for _ in range(repeats):
                tps.append(batch * (num_output - 1) / (generate(batch, num_prompt, num_output) - prefill_s))
            row = dict(shape=shape, k=k, batch=batch, num_prompt=num_prompt, decode_tps=tps)
            print(json.dumps(row | dict(multiprocessing=os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"])), flush=True)


if __name__ == "__main__":
    main()
