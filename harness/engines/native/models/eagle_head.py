"""The common part of EAGLE heads of both generations: one decoder layer over hidden states and embeddings. T rows, H
hidden."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.forward import Attention
from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.group import Group
from specbench.harness.engines.native.models.mlp import after_attention_compiled
from specbench.harness.engines.native.models.norm_reader import NormReader, product_add_rms_norm
from specbench.harness.engines.native.models.rope import rope_table
from specbench.kernels.attention.base import AttentionBackend

DRAFT_FIELD = "draft_tensor_parallel_size"  # the option that an error about a head's split names


@dataclass(slots=True, kw_only=True)
class HeadWeights:
    """Tensors of one head, fused for the forward pass; some may be the target's own."""

    fc: Product
    qkv: Product
    o: Product
    post_norm_H: Tensor
    gate_up: Product
    down: Product
    head_norm_2D: Tensor | None  # for query and KV heads, if the layer is Qwen3's
    lm_head: Product  # [Vd, H]
    embed_VH: Tensor
    embed_group: Group  # among whose ranks the embedding is split
    d2t_Vd: Tensor | None  # int64 offsets of a reduced vocabulary: target id = draft id + d2t[draft id]


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Placeholder for a row whose token and state are not known yet, for heads that draft all tokens in one pass."""

    token_id: int
    features_1F: Tensor  # learned, in place of the target's


class EagleHead:
    """One drafter layer over its own KV cache; positions are those of the target features. `config`: of what is
    computed here, which is only a part of the layer if a group splits it."""

    placeholder: Placeholder | None = None  # None: it drafts one token a pass

    def __init__(self, config: ModelConfig, weights: HeadWeights):
        self.config = config
        self.weights = weights

    @property
    def d2t(self) -> Tensor | None:
        return self.weights.d2t_Vd

    def attention(self, backend: AttentionBackend, num_positions: int) -> Attention:
        w = self.weights
        table = rope_table(self.config, num_positions, w.embed_VH.device)
        return Attention(self.config, backend, table, [w.head_norm_2D])

    def _after_attention(self, attn_TX: Tensor, residual_TH: Tensor, wanted_R: Tensor | None) -> Tensor:
        """The rest of the layer [T, H], or of the wanted rows alone; `residual_TH` may be overwritten."""
        w = self.weights
        if wanted_R is not None:
            attn_TX, residual_TH = attn_TX.index_select(0, wanted_R), residual_TH.index_select(0, wanted_R)
        eps = self.config.rms_norm_eps
        y_TH = after_attention_compiled(w.o, attn_TX, residual_TH, w.post_norm_H, w.gate_up, w.down, None, eps)
        if y_TH is not None:
            return y_TH
        reader = NormReader(w.gate_up, is_gated=True)
        x = product_add_rms_norm(w.o, attn_TX, residual_TH, w.post_norm_H, eps, reader)
        return w.down(reader(x)).add_(residual_TH)
