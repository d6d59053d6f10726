"""The feed-forward block of a layer: one gated MLP, or experts of which each row uses a few.

Shapes: rows T, hidden H, experts E.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specbench.harness.engines.native.models.experts_config import ExpertsConfig
from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.group import ALONE, Group
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.norm_reader import NormReader, product_add_rms_norm
from specbench.kernels import compiled
from specbench.kernels.deferred_norm import Rows
from specbench.kernels.experts import ExpertWeights, experts
from specbench.kernels.fp8 import widen_blocks
from specbench.kernels.product import after_attention


@dataclass(frozen=True, slots=True)
class DenseMlp:
    gate_up: Product
    down: Product

    def add_rms_norm(
        self, x: Rows, residual_TH: Tensor, weight_H: Tensor, eps: float, reader: NormReader | None
    ) -> Rows:
        """`residual += mlp(x)` in place, then its norm for `reader`."""
        return product_add_rms_norm(self.down, self.reader(x), residual_TH, weight_H, eps, reader)

    @property
    def reader(self) -> NormReader:
        """Of the norm before it."""
        return NormReader(self.gate_up, is_gated=True)

    @property
    def arithmetics(self) -> set[str]:
        return {self.gate_up.arithmetic, self.down.arithmetic}


@dataclass(frozen=True, slots=True)
class Experts:
    """`router`: logits [T, E] of x, the same on every rank; of each expert a rank has its part."""

    config: ExpertsConfig
    router: Product
    weights: ExpertWeights
    arithmetic: str = ""
    group: Group = ALONE

    def add_rms_norm(
        self, x: Rows, residual_TH: Tensor, weight_H: Tensor, eps: float, reader: NormReader | None
    ) -> Tensor:
        """`residual += mlp(x)` in place, then its norm."""
        assert isinstance(x, Tensor), "it has no reader of a norm"
        y_TH = experts(x, self.router(x), self.weights, self.config.per_token, self.config.normalised)
        return self.group.add_rms_norm(y_TH, residual_TH, weight_H, eps)

    @property
    def reader(self) -> None:
        return None

    @property
    def arithmetics(self) -> set[str]:
        return {self.router.arithmetic, self.arithmetic}

    def in_fp32(self, router: Linear) -> Experts:
        """The same weights, multiplied in fp32."""
        w = self.weights
        wide = ExpertWeights(
            _widened(w.gate_up_EXH, w.gate_up_scale), _widened(w.down_EHI, w.down_scale), w.read_2.clone()
        )
        return Experts(self.config, router, wide)


Mlp = DenseMlp | Experts


def rest_of_layer(
    o: Product,
    attn_TX: Tensor,
    residual_TH: Tensor,
    post_norm_H: Tensor,
    mlp: Mlp,
    next_norm_H: Tensor,
    eps: float,
    reader: NormReader | None,
) -> Rows:
    """What follows attention: `residual` takes o's and the MLP's sums in place; returns its norm by `next_norm_H` for
    `reader`, the next layer's first product."""
    if isinstance(mlp, DenseMlp):
        x_TH = after_attention_compiled(o, attn_TX, residual_TH, post_norm_H, mlp.gate_up, mlp.down, next_norm_H, eps)
        if x_TH is not None:
            return x_TH
    x = product_add_rms_norm(o, attn_TX, residual_TH, post_norm_H, eps, mlp.reader)
    return mlp.add_rms_norm(x, residual_TH, next_norm_H, eps, reader)


def after_attention_compiled(
    o: Product,
    attn_TX: Tensor,
    residual_TH: Tensor,
    post_norm_H: Tensor,
    gate_up: Product,
    down: Product,
    next_norm_H: Tensor | None,
    eps: float,
) -> Tensor | None:
    """`after_attention` of kernels/product.py where it takes these products and rows, else None."""
    if not (
        type(o) is type(gate_up) is type(down) is Linear and compiled.takes(attn_TX)
    ):  # not of a group, whose sums follow
        return None
    packed_o, packed_gate_up, packed_down = o.packed_weight, gate_up.packed_weight, down.packed_weight
    if packed_o is None or packed_gate_up is None or packed_down is None:
        return None
    if o.bias is not None or gate_up.bias is not None or down.bias is not None:
        return None
    return after_attention(attn_TX, residual_TH, packed_o, post_norm_H, packed_gate_up, packed_down, next_norm_H, eps)


def _widened(weight_EOI: Tensor, scale: Tensor | None) -> Tensor:
    if scale is None:
        return weight_EOI.float()
    if scale.shape[1] == weight_EOI.shape[1]:
        return weight_EOI.float() * scale
    experts, outputs, inputs = weight_EOI.shape
    rows = scale.view(-1, scale.shape[2])  # whole blocks: those of all experts are stacked
    return widen_blocks(weight_EOI.view(-1, inputs), rows).view(experts, outputs, inputs)
