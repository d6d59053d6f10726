"""Attention over paged keys and values in Triton, with a launch that depends on shapes alone.

Legend: T rows of the step, B requests, q rows of one request, G = Hq / Hkv query heads sharing one key head, M = the
packed rows of one program (row m is step row m // G, head m % G), N keys of one block, D head dimension, S splits.

One program handles BLOCK_M packed rows of one request, one key head and one split of the keys. Splits are cut on the
device from kv_len, so short contexts keep every split that has work busy and a captured graph serves any length. Partial
results are merged by their log-sum-exp (Flash-Decoding, Dao et al. 2023) in a second kernel.
"""

from dataclasses import dataclass
from typing import Callable

import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.attention.launch import Launch, LaunchShape, choose_launch
from specbench.kernels.triton_support import tl, triton

_LOG2_E = 1.4426950408889634
# Stands for -inf in scores and maxima: exp2 of a difference of two of them is 1, not NaN, and the next real maximum (or
# the merge) multiplies whatever was summed up under it by exp2(-1e30) = 0.
_MASKED = tl.constexpr(-1.0e30)


class TritonAttention:
    """Paged attention for CUDA devices (and for Triton's interpreter); capturable in CUDA graphs after one warm-up call."""

    name = "triton"

    def __init__(self, choose: Callable[[LaunchShape], Launch] = choose_launch) -> None:
        """`choose` maps the host-known shape to the launch; tests and sweeps pass their own."""
        self._choose = choose

    def forward(
        self, q_THD: Tensor, k_cache: Tensor, v_cache: Tensor, meta: AttentionMetadata, scale: float
    ) -> Tensor:
        """See AttentionBackend.forward. Rows that belong to no request stay unwritten."""
        num_rows, num_heads, head_dim = q_THD.shape
        _, page_size, num_kv_heads, _ = k_cache.shape
        num_requests = meta.kv_len_B.shape[0]
        group = num_heads // num_kv_heads
        launch = self._choose(
            LaunchShape(
                num_requests=num_requests,
                num_rows=num_rows,
                max_q=meta.max_q,
                max_kv=meta.max_kv,
                num_kv_heads=num_kv_heads,
                group=group,
                head_dim=head_dim,
                element_bytes=q_THD.element_size(),
                num_sms=_num_sms(q_THD.device),
            )
        )
        out_THD = torch.empty_like(q_THD)
        is_split = launch.num_splits > 1
        if is_split:
            partial_STHD = q_THD.new_empty((launch.num_splits, *q_THD.shape), dtype=torch.float32)
            lse_STH = q_THD.new_empty((launch.num_splits, num_rows, num_heads), dtype=torch.float32)
        else:
            partial_STHD, lse_STH = out_THD, out_THD
        mask_BQQ = meta.tree_mask_BQQ
        has_mask = mask_BQQ is not None
        uniform_q = meta.max_q if meta.uniform else 0
        block_b = triton.next_power_of_2(num_requests)
        num_tiles = launch.num_tiles(num_requests, num_rows, meta.max_q, meta.uniform, group)
        _attention_kernel[(num_kv_heads, num_tiles, launch.num_splits)](
            q_THD,
            k_cache,
            v_cache,
            partial_STHD,
            lse_STH,
            meta.cu_q_B1,
            meta.kv_len_B,
            meta.block_table_BP,
            mask_BQQ.view(torch.uint8) if has_mask else q_THD,
            scale * _LOG2_E,
            num_requests,
            num_rows,
            q_THD.stride(0),
            k_cache.stride(0),
            k_cache.stride(1),
            v_cache.stride(0),
            v_cache.stride(1),
            meta.block_table_BP.stride(0),
            GROUP=group,
            HEAD_DIM=head_dim,
            PAGE_SIZE=page_size,
            UNIFORM_Q=uniform_q,
            HAS_MASK=has_mask,
            IS_SPLIT=is_split,
            BLOCK_B=block_b,
            BLOCK_M=launch.block_m,
            BLOCK_N=launch.block_n,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
        if is_split:
            _merge_kernel[(num_rows, num_heads)](
                partial_STHD,
                lse_STH,
                out_THD,
                meta.cu_q_B1,
                meta.kv_len_B,
                num_requests,
                num_rows,
                launch.num_splits,
                HEAD_DIM=head_dim,
                UNIFORM_Q=uniform_q,
                BLOCK_B=block_b,
                BLOCK_S=triton.next_power_of_2(launch.num_splits),
                BLOCK_N=launch.block_n,
                num_warps=min(4, launch.num_splits),
            )
        return out_THD
