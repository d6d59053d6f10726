"""Matrices of a checkpoint in the form that the forward passes use: products over the same input stacked into one.

Shapes are those of the checkpoint; one of several ranks gets its part: heads and the MLP's intermediate size are split.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.fp8_linear import Product, fp8_product
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.split_linear import RowParallel, gathered
from specbench.harness.engines.native.models.weights import WeightSource


def stacked(source: WeightSource, prefix: str, parts: list[tuple[str, int]], num_inputs: int, bias: bool) -> Product:
    """Several products over the same input as one: their weights stacked along the outputs, which are split."""
    modules = [(f"{prefix}{name}", (out, num_inputs)) for name, out in parts]
    biases = [source.get(f"{module}.bias", shape[:1], split=0) for module, shape in modules] if bias else []
    return _product(source, modules, torch.cat(biases) if biases else None, split=0)


def _product(
    source: WeightSource, modules: list[tuple[str, tuple[int, int]]], bias_O: Tensor | None, split: int | None = None
) -> Product:
    found = {module: source.fp8(module, shape, split) for module, shape in modules}
    quantized = {module: matrix for module, matrix in found.items() if matrix is not None}
    if not quantized:
        return Linear(torch.cat([source.get(f"{module}.weight", shape, split) for module, shape in modules]), bias_O)
    if others := [module for module, _ in modules if module not in quantized]:
        raise ValueError(
            f"checkpoint: config.json says that {next(iter(quantized))} is quantized and {others[0]} is not; allowed: "
            "both or neither, since they are multiplied as one"
        )
    return fp8_product(list(quantized.values()), bias_O, source.dtype)


def qkv(source: WeightSource, prefix: str, c: ModelConfig, num_inputs: int) -> Product:
    q, kv = c.num_q_heads * c.head_dim, c.num_kv_heads * c.head_dim
    parts = [("q_proj", q), ("k_proj", kv), ("v_proj", kv)]
    return stacked(source, f"{prefix}self_attn.", parts, num_inputs, c.qkv_bias)


def head_norm(source: WeightSource, prefix: str, c: ModelConfig) -> Tensor | None:
    """[2, D]: the norm weights of query heads, then of KV heads; None if the model has none."""
    if not c.qk_norm:
        return None
    return torch.stack([source.get(f"{prefix}self_attn.{name}_norm.weight", (c.head_dim,)) for name in "qk"])


def attention_output(source: WeightSource, prefix: str, c: ModelConfig) -> Product:
    return summed(source, f"{prefix}self_attn.o_proj", c.hidden_size, c.num_q_heads * c.head_dim, c.o_bias)


def gate_up(source: WeightSource, prefix: str, c: ModelConfig) -> Product:
    parts = [("gate_proj", c.intermediate_size), ("up_proj", c.intermediate_size)]
    return stacked(source, f"{prefix}mlp.", parts, c.hidden_size, bias=False)


def down(source: WeightSource, prefix: str, c: ModelConfig) -> Product:
    return summed(source, f"{prefix}mlp.down_proj", c.hidden_size, c.intermediate_size)


def summed(source: WeightSource, name: str, num_outputs: int, num_inputs: int, bias: bool = False) -> Product:
    """The inputs are split, and the outputs are summed over all ranks."""
    group = source.group
    if group.size == 1:
        return single(source, name, num_outputs, num_inputs, bias)
    bias_O = source.get(f"{name}.bias", (num_outputs,)) if bias else None
    own = _product(source, [(name, (num_outputs, num_inputs))], bias_O if group.rank == 0 else None, split=1)
    return RowParallel(own, group)


def lm_head_of(source: WeightSource, name: str, num_outputs: int, num_inputs: int) -> Product:
    """The outputs are split and gathered."""
    return gathered(_product(source, [(name, (num_outputs, num_inputs))], None, split=0), source.group)


def single(source: WeightSource, name: str, num_outputs: int, num_inputs: int, bias: bool = False) -> Product:
    """Whole on every rank."""
    bias_O = source.get(f"{name}.bias", (num_outputs,)) if bias else None
    return _product(source, [(name, (num_outputs, num_inputs))], bias_O)
