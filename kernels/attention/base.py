"""The interface of attention backends: inputs and outputs.

Legend: T rows of the step, B requests, Q most rows of one request, M keys that a tree mask covers, P pages a request, H
heads (Hq query, Hkv key-value), D head dimension. Keys and values live in caches [pages, page, Hkv, D]; key i of
request b is in page block_table[b, i // page] at offset i % page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


@dataclass(slots=True)
class AttentionMetadata:
    """The location of one step's rows and their keys; shared by all layers of the step, owned by its creator.

    Row j of a request with q rows sees keys 0 .. kv_len - q + j (causal, aligned to the bottom right). With a tree mask
    it sees the prefix (all keys but the last M) and those of the last M keys that the mask names.
    kv_len < q is a caller's error: the torch backend raises, device kernels return garbage.

    The tensors may be rewritten in place between steps (captured graphs need that). max_q, max_kv and is_uniform are
    host constants that a captured launch was built from.
    """

    cu_q_B1: Tensor
    """int32 [B+1], first row of each request."""
    kv_len_B: Tensor
    """int32 [B], keys of each request, its own rows of this step included."""
    block_table_BP: Tensor
    """int32 [B, P]; may be a view with a longer row stride."""
    max_q: int
    """Most rows of one request."""
    max_kv: int
    """Upper bound of kv_len."""
    is_uniform: bool
    """Every request has exactly max_q rows."""
    tree_mask_BQM: Tensor | None = None
    """bool [B, Q, M]: row i may see key kv_len - M + j. Only when uniform; M >= Q, and kv_len >= M."""
    cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """Backend-private: what a backend derives from the fields once and shares between layers."""

    @staticmethod
    def uniform(
        cu_q_B1: Tensor,
        kv_len_B: Tensor,
        block_table_BP: Tensor,
        *,
        q: int,
        max_kv: int,
        mask_BQM: Tensor | None = None,
    ) -> AttentionMetadata:
        """Every request has exactly `q` rows, under a tree mask where one is given."""
        return AttentionMetadata(cu_q_B1, kv_len_B, block_table_BP, q, max_kv, True, mask_BQM)

    @staticmethod
    def ragged(
        cu_q_B1: Tensor, kv_len_B: Tensor, block_table_BP: Tensor, *, max_q: int, max_kv: int
    ) -> AttentionMetadata:
        """Requests with rows of their own number, at most `max_q`."""
        return AttentionMetadata(cu_q_B1, kv_len_B, block_table_BP, max_q, max_kv, False)


class AttentionBackend(Protocol):
    """Attention of the step's rows over paged keys and values."""

    name: str
    is_planned: bool
    """Whether `plan` must be called with host-known lengths before each launch (see PlannedAttentionBackend)."""
    reads_lengths: bool = False
    """Whether `forward` reads lengths on the host, so that it cannot be captured."""

    def forward(
        self,
        q_THD: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        meta: AttentionMetadata,
        scale: float,
        out_THD: Tensor | None = None,
    ) -> Tensor:
        """Return softmax(scale * q k^T + mask) v as [T, Hq, D] in q's dtype, written to `out_THD` where it is given.

        q_THD [T, Hq, D]; k_cache, v_cache [pages, page, Hkv, D] with Hq a multiple of Hkv (query head h reads head
        h // (Hq / Hkv)). The keys and values of this step's rows are already stored.
        """
        ...


@dataclass(frozen=True, slots=True)
class HostLengths:
    """The values of a metadata's tensors, known on the host before the launch."""

    cu_q_B1: np.ndarray
    """int32 [B+1]."""
    kv_len_B: np.ndarray
    """int32 [B]."""
    block_table_BP: np.ndarray
    """int32 [B, P]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionGeometry:
    """The model's side of a plan."""

    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    scale: float
    dtype: torch.dtype
    device: torch.device


class PlannedAttentionBackend(AttentionBackend, Protocol):
    """A backend whose launches are planned on the host from the lengths of the step."""

    def plan(self, meta: AttentionMetadata, lengths: HostLengths, geometry: AttentionGeometry) -> None:
        """Prepares the launches of all layers over `meta`. Once a step, before the first `forward`, outside any graph.

        The same `meta` object is planned again for each replay of a graph that captured a `forward` over it: whatever
        the captured launches read is rewritten in place.
        """
        ...
