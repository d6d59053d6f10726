"""Paged attention of a few rows of each request, in CUDA C++ for Hopper GPUs (bulk_attention.cu): over a few hundred
keys, and over more where requests fill the GPU.

A thread block takes all keys of a request and KV head, so there is nothing to merge between blocks. Keys and values of
earlier steps are read before the kernel waits for the one before it. Kernels that may still run then write only the
rows of the step (queries, and the keys and values that go with them): `rope_store_kv` lets others start after its own
wait, and so does this kernel. The result of a row depends on neither the others of its request nor other requests: a
verify pass is bitwise equal to passes over one row, as long as both have as many groups.
Legend: T rows of the step, B requests, P pages of a request, H heads, S keys of a page, D head dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from specbench.kernels import cuda_source
from specbench.kernels.attention.launch import FEW_KEYS, LaunchShape

_WARPS = 4  # that multiply; a fifth copies
_BOX = 16  # keys
_LINE = 64  # dimensions: 128 bytes of a key
_TILE = 8  # packed rows
_MAX_ROWS = 3 * _TILE  # more do not fit into registers
_HEAD_DIMS = (64, 128)
_MAX_STAGES = 24
_MIN_BUSY = 0.9  # share of the blocks that have work while any has
_SM_BYTES, _BLOCK_BYTES = 228 << 10, 1 << 10  # shared memory of a multiprocessor, and what each of its blocks loses
_FILE = Path(__file__).parents[1] / "bulk_attention.cu"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a compilation depends on: rows of a request, heads, the cache's form; groups of warps, which have a part of
    the keys each; and blocks of a multiprocessor. `in_turn`: of a launch, whose blocks take one request and KV head
    after another; otherwise there is a block for each."""

    rows: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    groups: int
    blocks: int
    in_turn: bool = True

    @property
    def num_stages(self) -> int:
        room = min(_SM_BYTES // self.blocks - _BLOCK_BYTES, cuda_source.MAX_SHARED_BYTES) - self._bytes_beside_stages
        return min(room // (self._stage_bytes + 16), _MAX_STAGES) // self.groups * self.groups

    @property
    def shared_bytes(self) -> int:
        return self.num_stages * (self._stage_bytes + 16) + self._bytes_beside_stages

    @property
    def _stage_bytes(self) -> int:
        return 2 * _BOX * self.head_dim * 2

    @property
    def _bytes_beside_stages(self) -> int:
        packed = self.rows * (self.num_heads // self.num_kv_heads)
        lines = (self.head_dim // _LINE - 1) * packed + -(-packed // _TILE) * _TILE
        query_bytes = -(-lines * 128 // 1024) * 1024
        sums = self.groups * self.head_dim + _WARPS * 4
        return query_bytes + packed * (sums * 4 + self.groups * 8) + 2 * 8


def bulk_sizes(shape: LaunchShape, q_THD: Tensor, k_cache: Tensor, v_cache: Tensor) -> Sizes | None:
    """The launch of `bulk_attention` for causal rows of these operands; None where Triton's kernel takes them."""
    page_size, head_dim = k_cache.shape[1], shape.head_dim
    if not (
        head_dim in _HEAD_DIMS
        and page_size % _BOX == 0
        and k_cache.is_contiguous()
        and v_cache.is_contiguous()
        and cuda_source.takes(q_THD[:, 0], k_cache.view(-1, head_dim))
        and cuda_source.takes(q_THD[:, 0], v_cache.view(-1, head_dim))
    ):
        return None
    if shape.uniform:
        of_any_step = replace(shape, num_requests=1, num_rows=1, max_kv=1)
        _load_all(of_any_step, page_size, q_THD.dtype == torch.float16, q_THD.device)
    return choose_sizes(shape, page_size)


def choose_sizes(shape: LaunchShape, page_size: int) -> Sizes | None:
    """By rows and requests; None where Triton's kernel takes the launch.

    Measured on an H200 (benchmarks/attention.md, "Attention of few rows in CUDA C++"): more than one tile gains little
    in a round. Over few keys it is taken for the bits of a pass of one row, over many it is not. A multiprocessor with
    one request and KV head should be done soon, so all four warps share the keys; one with several should keep its
    memory busy, so it has blocks that copy while others add up. Many keys do that by themselves, and a key should not
    be multiplied by two warps: at the power limit work costs time even where memory is the limit. Where their numbers
    differ much, the GPU had better give each block of them to the first multiprocessor that is free. Triton's kernel
    splits the keys of too few requests among blocks.
    """
    packed = shape.max_q * shape.group
    if not shape.uniform or packed > _MAX_ROWS:
        return None
    num_items = shape.num_requests * shape.num_kv_heads
    if shape.most_kv > FEW_KEYS:
        if shape.head_dim == _LINE or packed > _TILE or _busy(num_items, 2 * shape.num_sms) < _MIN_BUSY:
            return None
        groups, blocks = _WARPS, 2
    elif num_items <= shape.num_sms:
        groups, blocks = _WARPS, 1
    else:
        groups, blocks = _WARPS * _LINE // shape.head_dim, 3 if num_items > 6 * shape.num_sms and packed <= _TILE else 2
    num_heads = shape.num_kv_heads * shape.group
    in_turn = shape.most_kv <= FEW_KEYS
    return Sizes(shape.max_q, num_heads, shape.num_kv_heads, shape.head_dim, page_size, groups, blocks, in_turn)


def _busy(num_items: int, num_blocks: int) -> float:
    return num_items / (-(-num_items // num_blocks) * num_blocks)


def bulk_attention(
    q_THD: Tensor,
    k_PSHD: Tensor,
    v_PSHD: Tensor,
    kv_len_B: Tensor,
    block_table_BP: Tensor,
    scale: float,
    out_THD: Tensor,
    sizes: Sizes,
) -> Tensor:
    """Causal attention of the last `sizes.rows` tokens of each request, into `out_THD`. The numbers of keys and the
    pages (int32) are read before the kernel waits."""
    device = q_THD.device
    num_items = kv_len_B.shape[0] * sizes.num_kv_heads
    assert kv_len_B.dtype == block_table_BP.dtype == torch.int32 and block_table_BP.stride(1) == 1
    assert q_THD.shape[0] >= sizes.rows * kv_len_B.shape[0] and out_THD.is_contiguous()
    at_once = sizes.blocks * cuda_source.num_multiprocessors(device)
    num_blocks = min(num_items, at_once) if sizes.in_turn else num_items
    cuda_source.launch(
        _load(sizes, q_THD.dtype == torch.float16, device),
        cuda_source.Grid(num_blocks, 32 * (_WARPS + 1), sizes.shared_bytes),
        device,
        _q_map(q_THD, sizes),
        _cache_map(k_PSHD),
        _cache_map(v_PSHD),
        out_THD,
        kv_len_B,
        block_table_BP,
        block_table_BP.stride(0),
        block_table_BP.shape[1],
        num_items,
        scale * math.log2(math.e),
    )
    return out_THD


@cache
def source(sizes: Sizes, is_half: bool) -> cuda_source.Source:
    constants = dict(
        D=sizes.head_dim,
        Q=sizes.rows,
        HEADS=sizes.num_heads,
        KV_HEADS=sizes.num_kv_heads,
        PAGE=sizes.page_size,
        GROUPS=sizes.groups,
        STAGES=sizes.num_stages,
        BLOCKS=sizes.blocks,
        SHARED=sizes.shared_bytes,
        HALF=int(is_half),
    )
    return cuda_source.Source(_FILE, "bulk_attention", tuple(constants.items()))


def _load(sizes: Sizes, is_half: bool, device: torch.device) -> cuda_source.Handle:
    return cuda_source.load(source(sizes, is_half), sizes.shared_bytes, device)


@cache
def _load_all(shape: LaunchShape, page_size: int, is_half: bool, device: torch.device) -> None:
    """Compiles what any number of requests needs, so that none that a run meets later is compiled within measured
    time."""
    numbers = range(1, 6 * shape.num_sms // shape.num_kv_heads + 2)  # of requests: with more the launch is the same
    every = {choose_sizes(replace(shape, num_requests=number), page_size) for number in numbers}
    for sizes in filter(None, every):
        _load(sizes, is_half, device)


def _q_map(q_THD: Tensor, sizes: Sizes) -> cuda_source.Handle:
    """Dimensions from the innermost: a line's, heads, rows, lines."""
    num_rows, num_heads, head_dim = q_THD.shape
    lines = head_dim // _LINE
    box = _LINE, num_heads // sizes.num_kv_heads, sizes.rows, lines
    return cuda_source.tensor_map(
        q_THD, (_LINE, num_heads, num_rows, lines), (head_dim, cuda_source.pitch(q_THD.flatten(1)), _LINE), box
    )


def _cache_map(cache_PSHD: Tensor) -> cuda_source.Handle:
    """Dimensions from the innermost: a line's, keys, lines, heads."""
    pages, page_size, num_heads, head_dim = cache_PSHD.shape
    lines = head_dim // _LINE
    shape, strides = (_LINE, pages * page_size, lines, num_heads), (num_heads * head_dim, _LINE, head_dim)
    return cuda_source.tensor_map(cache_PSHD, shape, strides, (_LINE, _BOX, lines, 1))
