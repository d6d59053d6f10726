"""The frozen target over a padded batch: fused features and last hidden states, computed as in inference.

Legend: B sequences, T padded length, N = B * T flat rows, H hidden, F = 3H, D head size, M longest position.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.forward import run_pieces
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.rope import rope_table
from specbench.kernels.rope_store_kv import rope_store_kv


class DenseAttention:
    """Causal attention of whole sequences, without pages or a cache. Rope is the engine's kernel over a temporary
    buffer."""

    def __init__(
        self, config: ModelConfig, cos_sin_MD: Tensor, head_norms: Sequence[Tensor | None], num_sequences: int
    ):
        self._config = config
        self._cos_sin_MD = cos_sin_MD
        self._head_norms = head_norms
        self._num_sequences = num_sequences

    def __call__(self, layer: int, qkv_NX: Tensor) -> Tensor:
        c, num_rows = self._config, qkv_NX.shape[0]
        width = num_rows // self._num_sequences
        slot_N = torch.arange(num_rows, device=qkv_NX.device)
        k, v = (qkv_NX.new_empty(1, num_rows, c.num_kv_heads, c.head_dim) for _ in range(2))
        q = rope_store_kv(
            qkv_NX,
            self._cos_sin_MD,
            slot_N % width,
            slot_N,
            k,
            v,
            c.num_q_heads,
            c.num_kv_heads,
            self._head_norms[layer],
            c.rms_norm_eps,
        )
        q, k, v = (x.view(self._num_sequences, width, -1, c.head_dim).transpose(1, 2) for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=c.num_q_heads != c.num_kv_heads)
        return out.transpose(1, 2).reshape(num_rows, c.num_q_heads * c.head_dim)


class FrozenTarget:
    """The target over sequences of at most `max_tokens`."""

    def __init__(self, target: LlamaModel, max_tokens: int):
        self.target = target
        self._cos_sin_MD = rope_table(target.config, max_tokens, target.device)

    @torch.no_grad()
    def states(self, ids_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Final-normed hidden states [N, H] and features [N, F] of every row."""
        c, num_sequences = self.target.config, ids_BT.shape[0]
        ids_N = ids_BT.reshape(-1)
        features_NF = torch.empty(
            len(ids_N), len(self.target.aux_layers) * c.hidden_size, dtype=self.target.dtype, device=self.target.device
        )
        attend = DenseAttention(c, self._cos_sin_MD, self.target.head_norms, num_sequences)
        return run_pieces(self.target.pieces(ids_N, features_NF), attend), features_NF
