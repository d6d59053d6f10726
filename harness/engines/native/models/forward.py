"""The inputs of a forward pass besides weights: its rows, their keys, and attention over them; shared by all models.

Shapes: T rows of a step (all requests' tokens, flat), D head_dim, Hq and Hkv query and key-value heads. A forward pass
is a generator of pieces: it yields (layer, qkv) where a layer needs attention and is sent the result. Its driver
decides how the pieces run: all eagerly, or a CUDA graph for each piece (core/forward.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.kernels.attention.base import (
    AttentionBackend,
    AttentionGeometry,
    AttentionMetadata,
    HostLengths,
    PlannedAttentionBackend,
)
from specbench.kernels.buffers import PassRows
from specbench.kernels.rope_store_kv import rope_store_kv


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

    @classmethod
    def over(cls, rows: PassRows, *parts: AttentionPart) -> ForwardBatch:
        return cls(rows.ids_T, rows.position_T, rows.kv_slot_T, parts)

    @classmethod
    def of_one_request(cls, ids: Sequence[int], start: int, device: torch.device) -> ForwardBatch:
        """Rows at the positions from `start` on, over one page (number 0) that has everything."""
        q, end = len(ids), start + len(ids)
        meta = AttentionMetadata.uniform(
            torch.tensor([0, q], dtype=torch.int32, device=device),
            torch.tensor([end], dtype=torch.int32, device=device),
            torch.zeros(1, 1, dtype=torch.int32, device=device),
            q=q,
            max_kv=end,
        )
        position_T = torch.arange(start, end, device=device)
        return cls(torch.tensor(list(ids), device=device), position_T, position_T, (AttentionPart(0, q, meta),))


class Attention:
    """Norm of query and KV heads, rope, KV write and attention of a model's layers: shared by targets and heads.

    `head_norms`: [2, D] or None for each layer.
    """

    def __init__(
        self, config: ModelConfig, backend: AttentionBackend, cos_sin_MD: Tensor, head_norms: Sequence[Tensor | None]
    ):
        self.config = config
        self.backend = backend
        self.cos_sin_MD = cos_sin_MD
        self.head_norms = head_norms
        self.scale = config.head_dim**-0.5

    def __call__(
        self, layer: int, qkv_TX: Tensor, batch: ForwardBatch, cache: KVCache, out_TX: Tensor | None = None
    ) -> Tensor:
        """Attention output [T, Hq * D], written to `out_TX` if given."""
        c = self.config
        q_THD = rope_store_kv(
            qkv_TX,
            self.cos_sin_MD,
            batch.position_T,
            batch.kv_slot_T,
            cache.k,
            cache.v,
            c.num_q_heads,
            c.num_kv_heads,
            self.head_norms[layer],
            c.rms_norm_eps,
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
        """Zeros [num_rows, Hq * D], into which `__call__` may write."""
        return cache.k.new_zeros(num_rows, self.config.num_q_heads * self.config.head_dim)

    @property
    def is_planned(self) -> bool:
        """Whether `plan` must be called before each launch, with lengths that the host knows."""
        return self.backend.is_planned

    def plan(self, meta: AttentionMetadata, lengths: HostLengths, cache: KVCache) -> None:
        """Plans the launches of all layers over `meta`; see PlannedAttentionBackend.plan."""
        assert self.is_planned, f"attention backend {self.backend.name} takes no plan"
        c = self.config
        geometry = AttentionGeometry(
            num_q_heads=c.num_q_heads,
            num_kv_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            page_size=cache.k.shape[1],
            scale=self.scale,
            dtype=cache.k.dtype,
            device=cache.k.device,
        )
        cast(PlannedAttentionBackend, self.backend).plan(meta, lengths, geometry)


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
