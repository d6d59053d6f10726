"""The shapes that vLLM's and SGLang's workers load with random weights, as directories that hold only a config.json,
and the size of their caches. Standard library only: the workers run where nothing of ours is importable."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from race_workers import Cell

_BF16 = 2  # bytes of a value
SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": dict(
        hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
        vocab_size=128256, rope_theta=5e5, num_hidden_layers=32, tie_word_embeddings=False, draft_vocab_size=32000,
    ),
    "llama-2-70b": dict(
        hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_key_value_heads=8, head_dim=128,
        vocab_size=32000, rope_theta=1e4, num_hidden_layers=80, tie_word_embeddings=False, draft_vocab_size=32000,
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
MAX_POSITION = 8192
COMMON = dict(
    model_type="llama", max_position_embeddings=MAX_POSITION, rms_norm_eps=1e-5, torch_dtype="bfloat16",
    bos_token_id=1, eos_token_id=2, hidden_act="silu",
)  # fmt: skip


def write_configs(shape: str, engine: str = "vllm") -> tuple[str, str]:
    """Directories of the target and its EAGLE-3 head. Two workers may write them at once: a file appears complete."""
    values = dict(SHAPES[shape])
    draft_vocab = values.pop("draft_vocab_size")
    target = {**COMMON, **values, "architectures": ["LlamaForCausalLM"]}
    draft = {
        **COMMON, **values, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1,
        "draft_vocab_size": draft_vocab, "tie_word_embeddings": False,
    }  # fmt: skip
    paths = []
    for name, content in (("target", target), ("draft", draft)):
        path = Path(f"/tmp/{engine}_{name}_{shape}")
        path.mkdir(exist_ok=True)
        written = path / f"config.json.{os.getpid()}"
        written.write_text(json.dumps(content))
        written.replace(path / "config.json")
        paths.append(str(path))
    return paths[0], paths[1]


def vocabulary(shape: str) -> int:
    """Prompts are drawn from the ids below this one, by all engines."""
    return min(40000, SHAPES[shape]["vocab_size"])


def prompts_of(num_words: int, cell: Cell) -> list[tuple[int, ...]]:
    """Those of our engine: always the same for a cell."""
    rng = random.Random(0)
    return [tuple(rng.randrange(10, num_words) for _ in range(cell.prompt)) for _ in range(cell.batch)]


def num_cached(cells: Iterable[Cell], num_tokens: int) -> int:
    """Tokens of the largest cell, and the drafts beyond them."""
    return max(cell.batch * (cell.prompt + num_tokens + 64) for cell in cells)


def _layer_bytes(shape: str) -> int:
    """Of a token's keys and values in one layer."""
    return 2 * _BF16 * SHAPES[shape]["num_key_value_heads"] * SHAPES[shape]["head_dim"]


def kv_bytes(shape: str, num_cached: int, num_ranks: int = 1) -> int:
    """A GPU's share of the keys and values of so many tokens, with a tenth to spare so that nothing is preempted."""
    all_layers = SHAPES[shape]["num_hidden_layers"] * _layer_bytes(shape)
    return int(1.1 * all_layers * num_cached / num_ranks) + (1 << 30)  # the drafter's layer is in the 1 GiB


def kv_bytes_of_pages(shape: str, k: int, num_pages: int, page_size: int) -> int:
    """Of exactly so many pages: vLLM divides what it is given among the target's layers and the drafter's one."""
    return num_pages * page_size * (SHAPES[shape]["num_hidden_layers"] + bool(k)) * _layer_bytes(shape)
