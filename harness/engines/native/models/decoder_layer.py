"""The weights of one layer of a target."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.mlp import Mlp


@dataclass(slots=True)
class DecoderLayer:
    """Weights of one decoder layer."""

    input_norm: Tensor
    qkv: Product
    o: Product
    post_norm: Tensor
    mlp: Mlp
    head_norm_2D: Tensor | None = None  # for query and KV heads: Qwen3
