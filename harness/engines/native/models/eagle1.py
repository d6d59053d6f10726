"""EAGLE-1 heads (Li et al. 2024, arXiv 2401.15077) in the published checkpoint format; EAGLE-2 uses the same files.

Shapes: T rows, H hidden size (the target's), Vd draft vocabulary.
Layer and conventions as in SafeAILab/EAGLE cnets1.py: `fc` takes the embedding of token p+1 and the target's
final-normed state of token p, embedding first; its output goes into attention un-normed and is the residual; there is
no final norm, and the target's `lm_head` reads the layer's output.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.features import Features
from specbench.harness.engines.native.models.forward import Attention, ForwardBatch, KVCache, Pieces, run_pieces
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.rope import rope_table
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.rms_norm import add_rms_norm
from specbench.kernels.silu_and_mul import silu_and_mul


@dataclass(slots=True)
class Eagle1Weights:
    """Tensors of one head, fused for the forward pass; embedding and usually lm_head are the target's."""

    fc: Linear  # [H, 2H], with or without bias
    qkv: Linear
    o: Linear
    post_norm_H: Tensor
    gate_up: Linear
    down: Linear
    lm_head: Linear  # [Vd, H]
    embed_VH: Tensor
    d2t_Vd: Tensor | None  # int64 offsets of a reduced vocabulary: target id = draft id + d2t[draft id]


class Eagle1Head:
    """One drafter layer over its own KV cache; positions are those of the target features."""

    features = Features.FINAL

    def __init__(self, config: ModelConfig, weights: Eagle1Weights):
        self.config = config
        self.weights = weights

    @property
    def d2t(self) -> Tensor | None:
        return self.weights.d2t_Vd

    def attention(self, backend: AttentionBackend, num_positions: int) -> Attention:
        return Attention(self.config, backend, rope_table(self.config, num_positions, self.weights.embed_VH.device))

    def project(self, features_TH: Tensor) -> Tensor:
        """The target's final-normed states are hidden states of the head as they are."""
        return features_TH

    def forward(self, batch: ForwardBatch, hidden_TH: Tensor, attention: Attention, cache: KVCache) -> Tensor:
        """The layer's output [T, H]; see `pieces`."""
        return run_pieces(self.pieces(batch.ids_T, hidden_TH), lambda layer, qkv_TX: attention(qkv_TX, batch, cache))

    def pieces(self, ids_T: Tensor, hidden_TH: Tensor) -> Pieces:
        """Row p takes the hidden state of position p and the embedding of token p+1 (`ids_T`). Returns [T, H]."""
        w = self.weights
        residual = w.fc(torch.cat([F.embedding(ids_T, w.embed_VH), hidden_TH], dim=-1))
        attn = yield 0, w.qkv(residual)
        x = add_rms_norm(w.o(attn), residual, w.post_norm_H, self.config.rms_norm_eps)
        return w.down(silu_and_mul(w.gate_up(x))).add_(residual)

    def logits_and_state(self, output_RH: Tensor) -> tuple[Tensor, Tensor]:
        """Draft logits [R, Vd] and the state [R, H] that the next draft step takes as its hidden."""
        return self.weights.lm_head(output_RH), output_RH
