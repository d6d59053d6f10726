"""Logits of a plain forward over a whole sequence: the reference for near-ties between two tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specbench.harness.engines.native.models.forward import ForwardBatch, KVCache
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.kernels.attention.torch_attention import TorchAttention


def last_hidden(target: LlamaModel, ids: Sequence[int], num_last: int) -> Tensor:
    """[num_last, H]: what the output projection takes at the last positions of `ids`, by one torch-attention pass over
    its own cache."""
    c, device, num_tokens = target.config, target.device, len(ids)
    shape = (1, num_tokens, c.num_kv_heads, c.head_dim)
    caches = [
        KVCache(*(torch.zeros(shape, dtype=target.dtype, device=device) for _ in range(2))) for _ in target.layers
    ]
    batch = ForwardBatch.of_one_request(ids, 0, device)
    return target.forward(batch, target.attention(TorchAttention(), num_tokens), caches)[-num_last:]


def last_logits(target: LlamaModel, ids: Sequence[int], num_last: int) -> Tensor:
    """fp32 [num_last, V] of `last_hidden`."""
    return target.logits(last_hidden(target, ids, num_last)).float()
