"""Attention over paged keys and values in Triton, with a launch that depends on shapes alone; on Hopper GPUs in
CUDA C++ (wgmma_attention.py) where that is faster.

Legend: T rows of the step, B requests, H heads, D head dimension, S splits of the keys.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.attention.launch import Launch, LaunchShape, choose_launch
from specbench.kernels.attention.paged_kernels import merge_splits_kernel, paged_attention_kernel
from specbench.kernels.attention.wgmma_attention import wgmma_attention, wgmma_form
from specbench.kernels.triton_support import early_launch, triton

_LOG2_E = 1.4426950408889634
_MERGE_NUM_WARPS = 2
# Block sizes over requests and splits come in few steps: each is a compilation, and one in the middle of a measured
# block would count in its figures.
_MIN_BLOCK_B = 64
_BLOCKS_S = (8, 32)


class TritonAttention:
    """Paged attention for CUDA devices and Triton's interpreter; capturable after one warm-up call of its shape."""

    name = "triton"
    is_planned = False

    def __init__(self, choose: Callable[[LaunchShape], Launch] | None = None) -> None:
        """`choose` maps the host-known shape to the launch in Triton; tests and sweeps pass their own."""
        self._choose = choose

    def forward(
        self,
        q_THD: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        meta: AttentionMetadata,
        scale: float,
        out_THD: Tensor | None = None,
    ) -> Tensor:
        """See AttentionBackend.forward. Rows of the step that belong to no request are left unwritten."""
        _check_layout(q_THD, k_cache, v_cache, meta)
        num_rows, num_heads, head_dim = q_THD.shape
        shape = LaunchShape.of(q_THD, k_cache, meta)
        mask_BQM = meta.tree_mask_BQM
        if out_THD is None:
            out_THD = q_THD.new_empty(q_THD.shape)
        assert out_THD.is_contiguous() and out_THD.dtype == q_THD.dtype, "out_THD must be dense and of q's dtype"
        if self._choose is None and mask_BQM is None and (form := wgmma_form(shape, q_THD, k_cache, v_cache)):
            lengths_and_pages = meta.kv_len_B, meta.block_table_BP
            return wgmma_attention(q_THD, k_cache, v_cache, *lengths_and_pages, scale, out_THD, form)
        launch = (self._choose or choose_launch)(shape)
        uniform_q = meta.max_q if meta.is_uniform else 0
        block_b = 1 if meta.is_uniform else max(_MIN_BLOCK_B, triton.next_power_of_2(shape.num_requests))
        is_split = launch.num_splits > 1
        partial_STHD, lse_STH = out_THD, out_THD
        if is_split:
            partial_STHD = q_THD.new_empty((launch.num_splits, *q_THD.shape), dtype=torch.float32)
            lse_STH = q_THD.new_empty((launch.num_splits, num_rows, num_heads), dtype=torch.float32)
        paged_attention_kernel[(shape.num_kv_heads, shape.num_tiles(launch.block_m), launch.num_splits)](
            q_THD,
            k_cache,
            v_cache,
            partial_STHD,
            lse_STH,
            meta.cu_q_B1,
            meta.kv_len_B,
            meta.block_table_BP,
            q_THD if mask_BQM is None else mask_BQM.view(torch.uint8),
            scale * _LOG2_E,
            shape.num_requests,
            num_rows,
            q_THD.stride(0),
            k_cache.stride(0),
            k_cache.stride(1),
            v_cache.stride(0),
            v_cache.stride(1),
            meta.block_table_BP.stride(0),
            NUM_KV_HEADS=shape.num_kv_heads,
            GROUP=shape.group,
            HEAD_DIM=head_dim,
            PAGE_SIZE=k_cache.shape[1],
            UNIFORM_Q=uniform_q,
            MASK_WIDTH=0 if mask_BQM is None else mask_BQM.shape[2],
            IS_SPLIT=is_split,
            BLOCK_B=block_b,
            BLOCK_M=launch.block_m,
            BLOCK_N=launch.block_n,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
            **early_launch(q_THD),
        )
        if is_split:
            merge_splits_kernel[(num_rows, num_heads)](
                partial_STHD,
                lse_STH,
                out_THD,
                meta.cu_q_B1,
                meta.kv_len_B,
                shape.num_requests,
                num_rows,
                launch.num_splits,
                NUM_HEADS=num_heads,
                HEAD_DIM=head_dim,
                UNIFORM_Q=uniform_q,
                BLOCK_B=block_b,
                BLOCK_S=_block_s(launch.num_splits if meta.is_uniform else max(launch.num_splits, _BLOCKS_S[-1])),
                BLOCK_N=launch.block_n,
                num_warps=_MERGE_NUM_WARPS,
                **early_launch(q_THD),
            )
        return out_THD


def _block_s(num_splits: int) -> int:
    return next((size for size in _BLOCKS_S if size >= num_splits), triton.next_power_of_2(num_splits))


def _check_layout(q_THD: Tensor, k_cache: Tensor, v_cache: Tensor, meta: AttentionMetadata) -> None:
    """The kernels take strides for rows, pages and slots; heads and their elements must lie densely."""
    head_dim = q_THD.shape[-1]
    assert head_dim == triton.next_power_of_2(head_dim), f"head_dim is {head_dim}; allowed: powers of two"
    assert q_THD.shape[1] % k_cache.shape[2] == 0, "query heads must be a multiple of KV heads"
    for name, tensor in (("q_THD", q_THD), ("k_cache", k_cache), ("v_cache", v_cache)):
        assert tensor.stride()[-2:] == (head_dim, 1), f"{name} must have dense heads, has strides {tensor.stride()}"
    assert q_THD.stride(0) % 16 == 0, f"q_THD must have aligned rows, has strides {q_THD.stride()}"  # one compilation
    assert meta.block_table_BP.stride(1) == 1, "block_table_BP must have dense rows"
    mask_BQM = meta.tree_mask_BQM
    if mask_BQM is not None:
        assert meta.is_uniform and mask_BQM.is_contiguous(), "a tree mask must be contiguous, the step uniform"
        assert mask_BQM.shape[2] >= mask_BQM.shape[1] == meta.max_q, "a tree mask is [B, Q, M] with M >= Q"
