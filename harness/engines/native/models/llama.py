"""Llama-family targets (Llama, Mistral, Qwen2, Qwen3, Qwen3-MoE) over a paged KV cache.

Shapes: T rows of a step (all requests' tokens, flat), H hidden, V vocabulary, D head_dim, F features (H an aux layer).
Module structure follows transformers' modeling_llama.py; the forward is written for few rows: fused QKV and gate/up
products, residual kept in place, rope and KV write in one operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from specbench.harness.engines.native.models.compiled_layers import compiled_layers, run_compiled, takes_pass
from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.decoder_layer import DecoderLayer
from specbench.harness.engines.native.models.expert_reads import ExpertReads
from specbench.harness.engines.native.models.forward import Attention, ForwardBatch, KVCache, Pieces, run_pieces
from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.group import ALONE, Group
from specbench.harness.engines.native.models.mlp import Experts, rest_of_layer
from specbench.harness.engines.native.models.norm_reader import NormReader
from specbench.harness.engines.native.models.rope import rope_table
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.compiled import takes
from specbench.kernels.deferred_norm import Rows
from specbench.kernels.layers import Layers
from specbench.kernels.rms_norm import rms_norm


class LlamaModel:
    """A target model, or one rank's part of it. Weights are immutable; the KV cache belongs to the caller.

    `config`: what is computed here; `whole`: the model. They differ if a group of several ranks splits it.
    """

    def __init__(
        self,
        config: ModelConfig,
        embed_VH: Tensor,
        layers: list[DecoderLayer],
        norm_H: Tensor,
        lm_head: Product,
        group: Group = ALONE,
        expert_reads: ExpertReads | None = None,
    ):
        """`config`: of the whole model. `expert_reads`: of another model over the same layers."""
        self.whole, self.config = config, config.split(group.size)
        self.group = group
        self.embed_VH = embed_VH
        self.layers = layers
        self.norm_H = norm_H
        self.lm_head = lm_head
        self.aux_layers: tuple[int, ...] = config.aux_layers
        counts = [layer.mlp.weights.read_2 for layer in layers if isinstance(layer.mlp, Experts)]
        self.expert_reads = expert_reads or ExpertReads(counts)

    def with_aux_layers(self, aux_layers: tuple[int, ...]) -> LlamaModel:
        """The same weights, returning the states entering these layers; the number of layers means the last state."""
        parts = self.whole, self.embed_VH, self.layers, self.norm_H, self.lm_head, self.group
        model = LlamaModel(*parts, self.expert_reads)
        model.aux_layers = aux_layers
        return model

    @property
    def dtype(self) -> torch.dtype:
        return self.embed_VH.dtype

    @property
    def arithmetic(self) -> str:
        """The arithmetic of matrices that are not stored in the model's dtype; empty if there are none."""
        products = [self.lm_head, *(p for layer in self.layers for p in (layer.qkv, layer.o))]
        kinds = {p.arithmetic for p in products}.union(*(layer.mlp.arithmetics for layer in self.layers))
        return "; ".join(sorted(kinds - {""}))

    @property
    def device(self) -> torch.device:
        return self.embed_VH.device

    def attention(self, backend: AttentionBackend, num_positions: int) -> Attention:
        """The attention object for one engine: `num_positions` must cover every position that engine writes."""
        return Attention(self.config, backend, rope_table(self.config, num_positions, self.device), self.head_norms)

    @property
    def head_norms(self) -> list[Tensor | None]:
        """[2, D] for each layer; see kernels/rope_store_kv.py."""
        return [layer.head_norm_2D for layer in self.layers]

    def forward(
        self, batch: ForwardBatch, attention: Attention, caches: Sequence[KVCache], features_TF: Tensor | None = None
    ) -> Tensor:
        """Returns the final-normed hidden states [T, H]; `features_TF` as in `pieces`."""
        if takes_pass(batch, attention, caches, self.aux_layers) and self._compiled is not None:
            out_TH = self._in_one_call(self._compiled, batch, attention, caches, features_TF)
            if out_TH is not None:
                return out_TH
        return run_pieces(
            self.pieces(batch.ids_T, features_TF), lambda layer, qkv_TX: attention(layer, qkv_TX, batch, caches[layer])
        )

    @cached_property
    def _compiled(self) -> Layers | None:
        return compiled_layers(self.layers, self.norm_H, self.config)

    def _in_one_call(
        self,
        layers: Layers,
        batch: ForwardBatch,
        attention: Attention,
        caches: Sequence[KVCache],
        features_TF: Tensor | None,
    ) -> Tensor | None:
        residual_TH = self.group.embed(batch.ids_T, self.embed_VH)
        if not takes(residual_TH):
            return None
        hidden, kept = self.config.hidden_size, {}
        for place, aux_layer in enumerate(self.aux_layers if features_TF is not None else ()):
            assert features_TF is not None
            part_TH = features_TF[:, place * hidden : (place + 1) * hidden]
            if aux_layer == 0:
                part_TH.copy_(residual_TH)
            else:
                kept[aux_layer - 1] = part_TH
        normed_TH = rms_norm(residual_TH, self.layers[0].input_norm, self.config.rms_norm_eps)
        return run_compiled(layers, batch, attention, caches, residual_TH, normed_TH, kept)

    def pieces(self, ids_T: Tensor, features_TF: Tensor | None = None) -> Pieces:
        """The pass over rows `ids_T`, returning the final-normed hidden states [T, H].

        If `features_TF` [T, F] is given, the residual streams entering `aux_layers` are written there, side by side
        (low, mid, high: the order of EAGLE-3's `fc`).
        """
        eps = self.config.rms_norm_eps

        def note(index: int) -> None:
            if features_TF is not None:
                for place, aux_layer in enumerate(self.aux_layers):
                    if aux_layer == index:
                        features_TF[:, place * hidden : (place + 1) * hidden].copy_(residual)

        hidden = self.config.hidden_size
        residual = self.group.embed(ids_T, self.embed_VH)
        x: Rows = rms_norm(residual, self.layers[0].input_norm, eps)
        for index, layer in enumerate(self.layers):
            note(index)
            attn = yield index, NormReader(layer.qkv)(x)
            following = self.layers[index + 1] if index + 1 < len(self.layers) else None
            next_norm, reader = (following.input_norm, NormReader(following.qkv)) if following else (self.norm_H, None)
            x = rest_of_layer(layer.o, attn, residual, layer.post_norm, layer.mlp, next_norm, eps, reader)
        note(len(self.layers))
        assert isinstance(x, Tensor), "the last norm has no reader"
        return x

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """[R, V] in the model's dtype."""
        return self.lm_head(hidden_RH)
