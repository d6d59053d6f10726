"""Matrices of a checkpoint as the forward passes want them: products over the same input stacked into one."""

from __future__ import annotations

import torch

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.weights import WeightSource


def stacked(source: WeightSource, prefix: str, parts: list[tuple[str, int]], num_inputs: int, bias: bool) -> Linear:
    """Several products over the same input as one: their weights stacked along the outputs."""
    weight = torch.cat([source.get(f"{prefix}{name}.weight", (out, num_inputs)) for name, out in parts])
    biases = torch.cat([source.get(f"{prefix}{name}.bias", (out,)) for name, out in parts]) if bias else None
    return Linear(weight, biases)


def qkv(source: WeightSource, prefix: str, c: ModelConfig, num_inputs: int) -> Linear:
    q, kv = c.num_q_heads * c.head_dim, c.num_kv_heads * c.head_dim
    parts = [("q_proj", q), ("k_proj", kv), ("v_proj", kv)]
    return stacked(source, f"{prefix}self_attn.", parts, num_inputs, c.qkv_bias)


def attention_output(source: WeightSource, prefix: str, c: ModelConfig) -> Linear:
    return single(source, f"{prefix}self_attn.o_proj", c.hidden_size, c.num_q_heads * c.head_dim, c.o_bias)


def gate_up(source: WeightSource, prefix: str, c: ModelConfig) -> Linear:
    parts = [("gate_proj", c.intermediate_size), ("up_proj", c.intermediate_size)]
    return stacked(source, f"{prefix}mlp.", parts, c.hidden_size, bias=False)


def down(source: WeightSource, prefix: str, c: ModelConfig) -> Linear:
    return single(source, f"{prefix}mlp.down_proj", c.hidden_size, c.intermediate_size)


def single(source: WeightSource, name: str, num_outputs: int, num_inputs: int, bias: bool = False) -> Linear:
    weight = source.get(f"{name}.weight", (num_outputs, num_inputs))
    return Linear(weight, source.get(f"{name}.bias", (num_outputs,)) if bias else None)
