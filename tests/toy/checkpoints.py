"""Small checkpoints in the published formats, written by tests: what is on disk is known tensor by tensor."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import load_target

Tensors = dict[str, Tensor]
Change = Callable[[Tensors], None]


def llama_config(**changes: Any) -> dict[str, Any]:
    """config.json of a toy Llama."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        **changes,
    }


def eagle3_config(**changes: Any) -> dict[str, Any]:
    """config.json of a toy EAGLE-3 head: other heads, width and rope base than the target's."""
    return {
        **llama_config(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32),
        "architectures": ["LlamaForCausalLMEagle3"],
        "intermediate_size": 96,
        "rope_theta": 500.0,
        "draft_vocab_size": 48,
        **changes,
    }


def eagle1_config(**changes: Any) -> dict[str, Any]:
    """config.json of a toy EAGLE-1 head without a bias of `fc`; other heads and rope base than the target's."""
    return {
        **llama_config(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32),
        "intermediate_size": 96,
        "rope_theta": 500.0,
        "bias": False,
        **changes,
    }


class _Random:
    def __init__(self, seed: int):
        self._generator = torch.Generator().manual_seed(seed)

    def matrix(self, rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=self._generator) / math.sqrt(columns)

    def norm(self, size: int) -> Tensor:
        return 1 + 0.2 * torch.randn(size, generator=self._generator)


def _attention_and_mlp(r: _Random, prefix: str, c: dict[str, Any], num_inputs: int) -> Tensors:
    h, d, i = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    return {
        f"{prefix}self_attn.q_proj.weight": r.matrix(q, num_inputs),
        f"{prefix}self_attn.k_proj.weight": r.matrix(kv, num_inputs),
        f"{prefix}self_attn.v_proj.weight": r.matrix(kv, num_inputs),
        f"{prefix}self_attn.o_proj.weight": r.matrix(h, q),
        f"{prefix}mlp.gate_proj.weight": r.matrix(i, h),
        f"{prefix}mlp.up_proj.weight": r.matrix(i, h),
        f"{prefix}mlp.down_proj.weight": r.matrix(h, i),
        f"{prefix}post_attention_layernorm.weight": r.norm(h),
    }


def write_llama(folder: Path, config: dict[str, Any], seed: int = 3, change: Change | None = None) -> Tensors:
    r, h, v = _Random(seed), config["hidden_size"], config["vocab_size"]
    tensors: Tensors = {"model.embed_tokens.weight": r.matrix(v, h) * 3, "model.norm.weight": r.norm(h)}
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = r.matrix(v, h)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors |= _attention_and_mlp(r, prefix, config, h)
        tensors[f"{prefix}input_layernorm.weight"] = r.norm(h)
    return _write(folder, config, tensors, change)


def d2t_offsets(draft_vocab: int, vocab: int, seed: int = 11) -> Tensor:
    """Sorted random target ids as offsets from the draft ids."""
    ids = torch.randperm(vocab, generator=torch.Generator().manual_seed(seed))[:draft_vocab].sort().values
    return ids - torch.arange(draft_vocab)


def write_eagle3(
    folder: Path, config: dict[str, Any], target: dict[str, Any], seed: int = 5, change: Change | None = None
) -> Tensors:
    """A head for `target` (its config) with every tensor that `config` calls for; `embed_tokens` only where it must."""
    r, h, h_target = _Random(seed), config["hidden_size"], target["hidden_size"]
    draft_vocab = config.get("draft_vocab_size") or config["vocab_size"]
    tensors: Tensors = {
        "fc.weight": r.matrix(h, 3 * h_target),
        "midlayer.input_layernorm.weight": r.norm(h),
        "midlayer.hidden_norm.weight": r.norm(h),
        **_attention_and_mlp(r, "midlayer.", config, 2 * h),
        "norm.weight": r.norm(h),
        "lm_head.weight": r.matrix(draft_vocab, h),
    }
    if draft_vocab < config["vocab_size"]:
        d2t = d2t_offsets(draft_vocab, config["vocab_size"])
        tensors["d2t"] = d2t
        tensors["t2d"] = torch.zeros(config["vocab_size"], dtype=torch.bool)
        tensors["t2d"][d2t + torch.arange(draft_vocab)] = True
    if "ptd_token_id" in config:
        tensors["mask_hidden"] = r.matrix(1, 3 * h_target) * 8
    if h != h_target:
        tensors["embed_tokens.weight"] = r.matrix(config["vocab_size"], h)
    if config.get("fc_norm"):
        tensors |= {f"fc_norm.{i}.weight": r.norm(h_target) for i in range(3)}
    elif config.get("norm_before_fc") or config.get("eagle_config", {}).get("norm_before_fc"):
        tensors["input_norm.weight"] = r.norm(3 * h_target)
    return _write(folder, config, tensors, change)


def write_eagle1(folder: Path, config: dict[str, Any], seed: int = 6, change: Change | None = None) -> Tensors:
    """A head as published: the layer without an input norm, a copy of the target's embedding, no norm, no lm_head."""
    r, h, v = _Random(seed), config["hidden_size"], config["vocab_size"]
    tensors: Tensors = {
        "embed_tokens.weight": r.matrix(v, h) * 3,  # not the target's: engines share that one and drop this
        "fc.weight": r.matrix(h, 2 * h),
        **_attention_and_mlp(r, "layers.0.", config, h),
    }
    if config.get("bias", True):
        tensors["fc.bias"] = r.norm(h) - 1
    draft_vocab = config.get("draft_vocab_size") or v
    if draft_vocab < v:
        tensors |= {"lm_head.weight": r.matrix(draft_vocab, h), "d2t": d2t_offsets(draft_vocab, v)}
    return _write(folder, config, tensors, change)


def _write(folder: Path, config: dict[str, Any], tensors: Tensors, change: Change | None) -> Tensors:
    if change:
        change(tensors)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")
    return tensors


def load_written(folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> LlamaModel:
    return load_target(folder, dtype, torch.device(device))
