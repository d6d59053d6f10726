"""Checkpoints of toy mixtures of experts, written by transformers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from toy.byte_tokenizer import write_byte_tokenizer
from toy.fp8_checkpoints import FORMS, write_fp8

_SIZES = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, vocab_size=128, max_position_embeddings=512, num_experts=6, num_experts_per_tok=2,
    moe_intermediate_size=48, norm_topk_prob=True, pad_token_id=None, bos_token_id=None, eos_token_id=None,
)  # fmt: skip


def write_experts(folder: Path, **changes: Any) -> Path:
    """A Qwen3-MoE of six experts, of which a row takes two."""
    model, generator = Qwen3MoeForCausalLM(Qwen3MoeConfig(**{**_SIZES, **changes})), torch.Generator().manual_seed(1)
    for name, p in model.named_parameters():
        # Routers are decided, so that rounding does not change an expert.
        std = 4.0 if name.endswith("mlp.gate.weight") else 1.5
        mean, std = (1.0 if "norm" in name else 0.0, 0.3) if p.dim() == 1 else (0.0, std / math.sqrt(p.shape[-1]))
        p.data.normal_(mean, std, generator=generator)
    model.save_pretrained(folder)
    return folder


def write_fp8_experts(folder: Path) -> Path:
    """One that two ranks can share, in blocks of E4M3, with a tokenizer."""
    sizes = dict(hidden_size=128, moe_intermediate_size=256, head_dim=64, num_key_value_heads=4, vocab_size=258)
    source = write_experts(folder / "source", **sizes)
    model = write_fp8(source, folder, FORMS["qwen-block"], ("mlp.gate",)) / "fp8"
    write_byte_tokenizer(model)
    return model
