"""Attention backends for tests of the engine: they check what they are launched with and leave the work to torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionGeometry, AttentionMetadata, HostLengths
from specbench.kernels.attention.torch_attention import TorchAttention


class CheckedPlans(TorchAttention):
    """A planned backend: every launch must have been planned with the lengths and pages that the device has."""

    is_planned = True

    def __init__(self) -> None:
        self._planned: dict[int, tuple[AttentionMetadata, HostLengths]] = {}
        self.shapes: set[tuple[int, int]] = set()  # (requests, rows) of the plans
        self.num_forwards = 0

    def plan(self, meta: AttentionMetadata, lengths: HostLengths, geometry: AttentionGeometry) -> None:
        assert geometry.num_q_heads % geometry.num_kv_heads == 0
        self._planned[id(meta)] = meta, lengths
        self.shapes.add((len(lengths.kv_len_B), int(lengths.cu_q_B1[-1])))

    def forward(
        self,
        q_THD: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        meta: AttentionMetadata,
        scale: float,
        out_THD: Tensor | None = None,
    ) -> Tensor:
        assert id(meta) in self._planned, "launched without a plan"
        lengths = self._planned[id(meta)][1]
        np.testing.assert_array_equal(lengths.cu_q_B1, meta.cu_q_B1.numpy())
        np.testing.assert_array_equal(lengths.kv_len_B, meta.kv_len_B.numpy())
        page = k_cache.shape[1]
        for planned, device, kv_len in zip(lengths.block_table_BP, meta.block_table_BP, lengths.kv_len_B, strict=True):
            used = -(-int(kv_len) // page)
            np.testing.assert_array_equal(planned[:used], device[:used].numpy())
        self.num_forwards += 1
        return super().forward(q_THD, k_cache, v_cache, meta, scale, out_THD)


class WithoutPadding(TorchAttention):
    """Takes the layout of a captured mixed step, whose last rows belong to requests without keys: those become 0."""

    def __init__(self) -> None:
        self.num_padded = 0

    def forward(
        self,
        q_THD: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        meta: AttentionMetadata,
        scale: float,
        out_THD: Tensor | None = None,
    ) -> Tensor:
        without_keys = meta.kv_len_B < meta.cu_q_B1.diff()
        if without_keys.any():
            first = int(without_keys.nonzero()[0])
            assert not meta.kv_len_B[first:].any(), "padding stands last"
            meta = replace(meta, cu_q_B1=torch.minimum(meta.cu_q_B1, meta.cu_q_B1[first]))
            self.num_padded += 1
        return super().forward(q_THD, k_cache, v_cache, meta, scale, out_THD)
