"""What every attention backend is given and returns.

Legend: T rows of the step, B requests, Q most rows of one request, P pages a request, H heads (Hq query, Hkv
key-value), D head dimension. Keys and values live in caches [pages, page, Hkv, D]; key i of request b stands in page
block_table[b, i // page] at offset i % page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor


@dataclass(slots=True)
class AttentionMetadata:
    """Where the rows of one step and their keys are; shared by all layers of the step, owned by whoever built it.

    Row j of a request with q rows sees keys 0 .. kv_len - q + j (causal, aligned to the bottom right). With a tree mask
    it sees the prefix (kv_len - q keys) and those rows of its own step that the mask names.
    kv_len < q is a caller's error: the torch backend raises, device kernels return garbage.

    The tensors may be rewritten in place between steps (captured graphs need that). max_q, max_kv and uniform are host
    constants that a captured launch was built from.
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
    uniform: bool
    """Every request has exactly max_q rows."""
    tree_mask_BQQ: Tensor | None = None
    """bool [B, Q, Q]: row i may see own-step row j (itself always). Only when uniform."""
    cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """Backend-private: what a backend derives from the fields once and shares between layers."""


class AttentionBackend(Protocol):
    """Attention of the step's rows over paged keys and values."""

    name: str

    def forward(self, q_THD: Tensor, k_cache: Tensor, v_cache: Tensor, meta: AttentionMetadata, scale: float) -> Tensor:
        """Return softmax(scale * q k^T + mask) v as [T, Hq, D] in q's dtype.

        q_THD [T, Hq, D]; k_cache, v_cache [pages, page, Hkv, D] with Hq a multiple of Hkv (query head h reads head
        h // (Hq / Hkv)). The keys and values of this step's rows are already stored.
        """
        ...
