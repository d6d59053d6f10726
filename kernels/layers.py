"""The dense layers of a decoder over few rows on a CPU with AVX512-BF16, in one call (layers.c).

Legend: T rows, H hidden, F features, L layers, D head dimension, M longest position.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specbench.kernels import compiled
from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.product import fork

MAX_ROWS = 32
"""As in the file: what a thread does alone between two products would hold up the others."""


class LayerWeights(NamedTuple):
    """Weights of one layer; products as `pack` of kernels/product.py gives them."""

    qkv: Tensor
    qkv_bias: Tensor | None
    head_norm_2D: Tensor | None
    o: Tensor
    post_norm_H: Tensor
    gate_up: Tensor
    down: Tensor
    next_norm_H: Tensor
    """Of the next layer's input; behind the last layer the final one."""


class Layers:
    """The layers of one model. `intermediate`: a multiple of the outputs that are packed together."""

    def __init__(self, weights: Sequence[LayerWeights], num_q_heads: int, num_kv_heads: int, eps: float):
        self._weights = weights  # whose addresses follow
        self._table = (ctypes.c_int64 * (8 * len(weights)))(*(_address(each) for layer in weights for each in layer))
        self._num_q_heads, self._num_kv_heads, self._eps = num_q_heads, num_kv_heads, eps

    @staticmethod
    def take(weights: LayerWeights) -> bool:
        """Whether the layer's tensors are laid out as the function reads them."""
        vectors = (weights.qkv_bias, weights.head_norm_2D, weights.post_norm_H, weights.next_norm_H)
        known = [each for each in vectors if each is not None]
        panel, intermediate = weights.gate_up.shape[2], 2 * weights.down.shape[1]
        return (
            all(each.dtype == torch.bfloat16 and each.is_contiguous() for each in known)
            and intermediate % panel == 0
            and weights.gate_up.shape[0] * panel == 2 * intermediate
        )

    def __call__(
        self,
        residual_TH: Tensor,
        normed_TH: Tensor,
        caches: Sequence[tuple[Tensor, Tensor]],
        kept: dict[int, Tensor],
        cos_sin_MD: Tensor,
        position_T: Tensor,
        kv_slot_T: Tensor,
        meta: AttentionMetadata,
        scale: float,
    ) -> Tensor | None:
        """The layers over `normed_TH`, the norm of `residual_TH` before the first of them: returns the norm behind the
        last [T, H]. `residual_TH` takes the sums in place, `normed_TH` is overwritten. `caches`: dense keys and values
        of each layer, alike, where those of the rows are stored; `kept`: by layer, where the residual that leaves it is
        copied to, columns of one [T, F]. The rest is as for rope_store_kv and for an attention backend.

        None, with nothing done, for rows that the function does not take: more than `MAX_ROWS`, of no request, or of
        one with fewer keys than rows. Raises MemoryError."""
        num_rows, hidden = residual_TH.shape
        k_cache, v_cache = caches[0]
        mask, table_BP = meta.tree_mask_BQM, meta.block_table_BP
        _, page_size, num_kv_heads, head_dim = k_cache.shape
        page_stride, slot_stride, *_ = k_cache.stride()
        assert residual_TH.is_contiguous() and normed_TH.is_contiguous() and residual_TH.shape == normed_TH.shape
        assert residual_TH.dtype == normed_TH.dtype == k_cache.dtype == v_cache.dtype == torch.bfloat16
        assert num_kv_heads == self._num_kv_heads and all(
            each.is_contiguous() and each.shape == k_cache.shape for pair in caches for each in pair
        )
        assert cos_sin_MD.is_contiguous() and cos_sin_MD.dtype == torch.float32 and head_dim <= compiled.WIDEST_HEAD
        assert position_T.dtype == kv_slot_T.dtype == torch.int64
        assert position_T.is_contiguous() and kv_slot_T.is_contiguous()
        assert meta.cu_q_B1.dtype == meta.kv_len_B.dtype == table_BP.dtype == torch.int32 and table_BP.stride(1) == 1
        assert mask is None or mask.is_contiguous()
        assert len(caches) == len(self._weights)
        if num_rows > MAX_ROWS:
            return None
        places = [0] * (3 * len(caches))
        places[::3] = [k.data_ptr() for k, _ in caches]
        places[1::3] = [v.data_ptr() for _, v in caches]
        stride_kept = 0
        for layer, part_TH in kept.items():
            places[3 * layer + 2], stride_kept = part_TH.data_ptr(), part_TH.stride(0)
            assert part_TH.dtype == torch.bfloat16 and part_TH.stride(1) == 1 and part_TH.shape == residual_TH.shape
        out_TH = torch.empty_like(residual_TH)
        functions = compiled.library()
        assert functions is not None
        status = functions.specbench_layers(
            self._table,
            (ctypes.c_int64 * len(places))(*places),
            residual_TH.data_ptr(),
            normed_TH.data_ptr(),
            out_TH.data_ptr(),
            cos_sin_MD.data_ptr(),
            position_T.data_ptr(),
            kv_slot_T.data_ptr(),
            meta.cu_q_B1.data_ptr(),
            meta.kv_len_B.data_ptr(),
            table_BP.data_ptr(),
            None if mask is None else mask.data_ptr(),
            len(caches),
            hidden,
            2 * self._weights[0].down.shape[1],
            stride_kept,
            table_BP.stride(0),
            0 if mask is None else mask.shape[1],
            0 if mask is None else mask.shape[2],
            meta.kv_len_B.shape[0],
            num_rows,
            self._num_q_heads,
            num_kv_heads,
            head_dim,
            page_size,
            page_stride,
            slot_stride,
            scale,
            self._eps,
            fork(),
            torch.get_num_threads(),
        )
        if status < 0:
            raise MemoryError(f"no memory for {num_rows} rows of {len(caches)} layers")
        return out_TH if status == 0 else None


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
