"""What EAGLE heads of both generations have: one decoder layer over hidden states and embeddings. T rows, H hidden."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.forward import Attention
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.rope import rope_table
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.rms_norm import add_rms_norm
from specbench.kernels.silu_and_mul import silu_and_mul


@dataclass(slots=True, kw_only=True)
class HeadWeights:
    """Tensors of one head, fused for the forward pass; some may be the target's own."""

    fc: Linear
    qkv: Linear
    o: Linear
    post_norm_H: Tensor
    gate_up: Linear
    down: Linear
    lm_head: Linear  # [Vd, H]
    embed_VH: Tensor
    d2t_Vd: Tensor | None  # int64 offsets of a reduced vocabulary: target id = draft id + d2t[draft id]


class EagleHead:
    """One drafter layer over its own KV cache; positions are those of the target features."""

    def __init__(self, config: ModelConfig, weights: HeadWeights):
        self.config = config
        self.weights = weights

    @property
    def d2t(self) -> Tensor | None:
        return self.weights.d2t_Vd

    def attention(self, backend: AttentionBackend, num_positions: int) -> Attention:
        return Attention(self.config, backend, rope_table(self.config, num_positions, self.weights.embed_VH.device))

    def _after_attention(self, attn_TX: Tensor, residual_TH: Tensor) -> Tensor:
        """The rest of the layer [T, H]; `residual_TH` is overwritten."""
        w = self.weights
        x_TH = add_rms_norm(w.o(attn_TX), residual_TH, w.post_norm_H, self.config.rms_norm_eps)
        return w.down(silu_and_mul(w.gate_up(x_TH))).add_(residual_TH)
