"""FlashAttention over paged keys, with a launch that depends on shapes alone.

Legend: T rows of the step, B requests, H heads, D head dimension.

Splits of the keys. FlashAttention chooses them from host values, so a captured graph keeps what its capture chose: the
number is decided here, from shapes and from max_kv, never from the lengths of the capture. FlashAttention-3 takes it as
the most splits a request may have, and cuts each request's own keys on the device (`prepare_varlen_num_blocks`), so
short contexts are not cut to crumbs by a graph made for long ones. One split also saves the merging kernel, which it
launches for any other number.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.attention.flash_libs import FlashCall, FlashSource, find_flash_attention
from specbench.kernels.attention.launch import LaunchShape, choose_num_splits

# One program's packed rows and one block of its keys in FlashAttention's kernels for head dimensions up to 128.
_BLOCK_M, _BLOCK_N = 128, 128
_DTYPES = (torch.float16, torch.bfloat16)


def choose_flash_splits(shape: LaunchShape) -> int:
    """Most splits of a request's keys: as many as fill the device (one program a multiprocessor) and pay the merge."""
    return choose_num_splits(
        num_programs=shape.num_tiles(_BLOCK_M) * shape.num_kv_heads,
        num_slots=shape.num_sms,
        max_blocks=-(-shape.max_kv // _BLOCK_N),
    )


class FlashAttention:
    """FlashAttention-3, else 2, from whichever library this machine has; capturable after one warm-up call."""

    name = "flash-attention"
    is_planned = False

    def __init__(
        self, source: FlashSource | None = None, choose_splits: Callable[[LaunchShape], int] = choose_flash_splits
    ) -> None:
        """`source` defaults to the first library found; ValueError with what was tried where there is none.

        `choose_splits` maps the host-known shape to the number of splits; 0 leaves it to the library.
        """
        self.source = source or _require_source()
        self._choose_splits = choose_splits

    def forward(
        self,
        q_THD: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        meta: AttentionMetadata,
        scale: float,
        out_THD: Tensor | None = None,
    ) -> Tensor:
        """See AttentionBackend.forward. ValueError for tree masks, other dtypes and page sizes than the library's."""
        self._check(q_THD, k_cache, meta)
        out_THD = torch.empty_like(q_THD, memory_format=torch.contiguous_format) if out_THD is None else out_THD
        num_splits = self._choose_splits(LaunchShape.of(q_THD, k_cache, meta))
        self.source.run(FlashCall(q_THD, k_cache, v_cache, meta, scale, num_splits, out_THD))
        return out_THD

    def _check(self, q_THD: Tensor, k_cache: Tensor, meta: AttentionMetadata) -> None:
        page_size, multiple = k_cache.shape[1], self.source.page_multiple
        if meta.tree_mask_BQM is not None:
            raise ValueError("attention: flash-attention has no tree masks; allowed for trees: triton, flashinfer")
        if page_size % multiple:
            raise ValueError(f"page_size: {page_size}; allowed with {self.source.name}: multiples of {multiple}")
        if q_THD.dtype not in _DTYPES:
            raise ValueError(f"dtype: {q_THD.dtype}; allowed with flash-attention: float16, bfloat16")


def _require_source() -> FlashSource:
    lookup = find_flash_attention()
    if lookup.source is None:
        raise ValueError(f"attention: no library has flash-attention here; tried {'; '.join(lookup.refused)}")
    return lookup.source
