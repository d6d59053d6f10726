"""Llama-family targets (Llama, Qwen2) over a paged KV cache.

Shapes: T rows of a step (all requests' tokens, flat), H hidden, V vocabulary, D head_dim, F = 3H features.
Module structure follows transformers' modeling_llama.py; the forward is written for few rows: fused QKV and gate/up
products, residual kept in place, rope and KV write in one operation.

A forward pass is a generator of pieces: it yields (layer, qkv) where a layer needs attention and is sent the result.
Whoever drives it decides what lies between: one eager run, or a CUDA graph for each piece (engine/forward.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.kernels.attention.base import AttentionBackend, AttentionGeometry, AttentionMetadata
from specbench.kernels.rms_norm import add_rms_norm, rms_norm
from specbench.kernels.rope_store_kv import rope_store_kv
from specbench.kernels.silu_and_mul import silu_and_mul

from .config import ModelConfig
from .linear import Linear
from .rope import rope_table


@dataclass(slots=True)
class KVCache:
    """One layer's keys and values: each [pages, page_size, Hkv, D]. Page 0 is the dummy page."""

    k: Tensor
    v: Tensor


@dataclass(slots=True)
class AttentionPart:
    """Neighbouring rows of a step that go through attention together: decodes are uniform, prompt chunks ragged."""

    first_row: int
    num_rows: int
    meta: AttentionMetadata


@dataclass(slots=True)
class ForwardBatch:
    """What a forward pass needs besides weights; all tensors on the model's device."""

    ids_T: Tensor  # int64
    position_T: Tensor  # int64
    kv_slot_T: Tensor  # int64, page * page_size + offset
    parts: tuple[AttentionPart, ...]  # cover all rows, in order


@dataclass(slots=True)
class DecoderLayer:
    """Weights of one decoder layer."""

    input_norm: Tensor
    qkv: Linear
    o: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


class Attention:
    """Rope, KV write and attention of one layer: shared by targets and heads."""

    def __init__(self, config: ModelConfig, backend: AttentionBackend, cos_sin_MD: Tensor):
        self.config = config
        self.backend = backend
        self.cos_sin_MD = cos_sin_MD
        self.scale = config.head_dim**-0.5

    def __call__(self, qkv_TX: Tensor, batch: ForwardBatch, cache: KVCache, out_TX: Tensor | None = None) -> Tensor:
        """Attention output [T, Hq * D], written to `out_TX` where it is given."""
        c = self.config
        q_THD = rope_store_kv(
            qkv_TX, self.cos_sin_MD, batch.position_T, batch.kv_slot_T, cache.k, cache.v, c.num_q_heads, c.num_kv_heads
        )
        out_THD = None if out_TX is None else out_TX.view(q_THD.shape)
        if len(batch.parts) == 1:
            meta = batch.parts[0].meta
            out_THD = self.backend.forward(q_THD, cache.k, cache.v, meta, self.scale, out_THD)
            return out_THD.view(q_THD.shape[0], -1)
        out_THD = torch.empty_like(q_THD) if out_THD is None else out_THD
        for p in batch.parts:
            rows = slice(p.first_row, p.first_row + p.num_rows)
            self.backend.forward(q_THD[rows], cache.k, cache.v, p.meta, self.scale, out_THD[rows])
        return out_THD.view(q_THD.shape[0], -1)

    def new_output(self, num_rows: int, cache: KVCache) -> Tensor:
        """Zeros [num_rows, Hq * D], where `__call__` may write."""
        return cache.k.new_zeros(num_rows, self.config.num_q_heads * self.config.head_dim)

    def geometry(self, cache: KVCache) -> AttentionGeometry:
        """What a planned backend must know of the model and its cache."""
        c = self.config
        return AttentionGeometry(
            num_q_heads=c.num_q_heads,
            num_kv_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            page_size=cache.k.shape[1],
            scale=self.scale,
            dtype=cache.k.dtype,
            device=cache.k.device,
        )


Pieces = Generator[tuple[int, Tensor], Tensor, Tensor]
"""Yields (layer, qkv_TX), is sent the attention output [T, Hq * D], returns the pass's result."""


def run_pieces(pieces: Pieces, attend: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Drives a forward pass to its end."""
    try:
        layer, qkv_TX = next(pieces)
        while True:
            layer, qkv_TX = pieces.send(attend(layer, qkv_TX))
    except StopIteration as end:
        return end.value


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
