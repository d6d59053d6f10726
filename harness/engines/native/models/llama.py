"""Llama-family targets (Llama, Qwen2) over a paged KV cache.

Shapes: T rows of a step (all requests' tokens, flat), H hidden, V vocabulary, D head_dim, F = 3H features.
Module structure follows transformers' modeling_llama.py; the forward is written for few rows: fused QKV and gate/up
products, residual kept in place, rope and KV write in one operation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.forward import Attention, ForwardBatch, KVCache, Pieces, run_pieces
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.rope import rope_table
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.rms_norm import add_rms_norm, rms_norm
from specbench.kernels.silu_and_mul import silu_and_mul


@dataclass(slots=True)
class DecoderLayer:
    """Weights of one decoder layer."""

    input_norm: Tensor
    qkv: Linear
    o: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


class LlamaModel:
    """A target model. Weights are immutable; the KV cache is the caller's."""

    def __init__(
        self,
        config: ModelConfig,
        embed_VH: Tensor,
        layers: list[DecoderLayer],
        norm_H: Tensor,
        lm_head: Linear,
    ):
        self.config = config
        self.embed_VH = embed_VH
        self.layers = layers
        self.norm_H = norm_H
        self.lm_head = lm_head

    @property
    def dtype(self) -> torch.dtype:
        return self.embed_VH.dtype

    @property
    def device(self) -> torch.device:
        return self.embed_VH.device

    def attention(self, backend: AttentionBackend, num_positions: int) -> Attention:
        """The attention object for one engine: `num_positions` must cover every position that engine writes."""
        return Attention(self.config, backend, rope_table(self.config, num_positions, self.device))

    def forward(
        self, batch: ForwardBatch, attention: Attention, caches: list[KVCache], features_TF: Tensor | None = None
    ) -> Tensor:
        """Returns the final-normed hidden states [T, H]; `features_TF` as in `pieces`."""
        return run_pieces(
            self.pieces(batch.ids_T, features_TF), lambda layer, qkv_TX: attention(qkv_TX, batch, caches[layer])
        )

    def pieces(self, ids_T: Tensor, features_TF: Tensor | None = None) -> Pieces:
        """The pass over rows `ids_T`, returning the final-normed hidden states [T, H].

        If `features_TF` [T, 3H] is given, the residual stream entering the config's three aux layers is written there
        (low, mid, high: the concatenation order of EAGLE-3's `fc`).
        """
        eps = self.config.rms_norm_eps
        aux = self.config.aux_layers if features_TF is not None else ()
        hidden = self.config.hidden_size
        residual = F.embedding(ids_T, self.embed_VH)
        x = rms_norm(residual, self.layers[0].input_norm, eps)
        for index, layer in enumerate(self.layers):
            for place, aux_layer in enumerate(aux):
                if aux_layer == index:
                    features_TF[:, place * hidden : (place + 1) * hidden].copy_(residual)  # type: ignore[index]
            attn = yield index, layer.qkv(x)
            x = add_rms_norm(layer.o(attn), residual, layer.post_norm, eps)
            x = layer.down(silu_and_mul(layer.gate_up(x)))
            next_norm = self.layers[index + 1].input_norm if index + 1 < len(self.layers) else self.norm_H
            x = add_rms_norm(x, residual, next_norm, eps)
        return x

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """[R, V] in the model's dtype."""
        return self.lm_head(hidden_RH)
