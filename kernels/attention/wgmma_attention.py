"""Paged attention of a few rows of each request, in CUDA C++ for Hopper GPUs (wgmma_attention.cu): over a few hundred
keys, and over more where requests fill the GPU.

A thread block takes all keys of a request and KV head, 64 at a time, so there is nothing to merge between blocks. Keys
are the first operand of warpgroup products: rows are padded to a multiple of 8, where kernels that have rows as first
operand pad them to 64. Keys and values of earlier steps are read before the kernel waits for the one before it. Kernels
that may still run then write only the rows of the step (queries, and the keys and values that go with them):
`rope_store_kv` lets others start after its own wait, and so does this kernel. The result of a row depends on neither
the others of its request nor other requests: a verify pass is bitwise equal to passes over one row.
Legend: T rows of the step, B requests, P pages of a request, H heads, S keys of a page, D head dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from specbench.kernels import cuda_source
from specbench.kernels.attention.launch import FEW_KEYS, LaunchShape

_WARPS = 4  # that multiply; a fifth copies
_KEYS, _BOX, _OCTET = 64, 16, 8  # of a stage, of a copy, of what a copy leaves side by side
_LINE = 64  # dimensions: 128 bytes of a key
_MAX_ROWS = 48  # packed; more do not fit into registers
_HEAD_DIMS = (64, 128)
_MAX_STAGES = 8
_MIN_BUSY = 0.9  # share of the blocks that have work while any has
_SM_BYTES, _BLOCK_BYTES = 228 << 10, 1 << 10  # shared memory of a multiprocessor, and what each of its blocks loses
_FILE = Path(__file__).parents[1] / "wgmma_attention.cu"


@dataclass(frozen=True, slots=True)
class Form:
    """Rows of a request, heads, the cache's form, blocks of a multiprocessor; and whether blocks take one request and
    KV head after another, or there is one for each. All but the last are constants of a compilation."""

    rows: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    blocks: int
    in_turn: bool = True

    @property
    def padded(self) -> int:
        """Packed rows that are multiplied."""
        return -(-self.rows * self.num_heads // self.num_kv_heads // 8) * 8

    @property
    def num_stages(self) -> int:
        room = min(_SM_BYTES // self.blocks - _BLOCK_BYTES, cuda_source.MAX_SHARED_BYTES) - self._bytes_beside_stages
        return min(room // (self._stage_bytes + 16), _MAX_STAGES)

    @property
    def shared_bytes(self) -> int:
        return self.num_stages * (self._stage_bytes + 16) + self._bytes_beside_stages

    @property
    def _stage_bytes(self) -> int:
        return 2 * _KEYS * self.head_dim * 2

    @property
    def _bytes_beside_stages(self) -> int:
        """Queries, weights twice, sums of each warp, barriers."""
        return self.padded * (self.head_dim * 2 + 2 * _KEYS * 2 + _WARPS * 4) + 2 * 8


def wgmma_form(shape: LaunchShape, q_THD: Tensor, k_cache: Tensor, v_cache: Tensor) -> Form | None:
    """The launch of `wgmma_attention` for causal rows of these operands; None where Triton's kernel takes them. What
    other numbers of requests need is compiled too: a run that meets them later does not compile in measured time."""
    page_size, head_dim = k_cache.shape[1], shape.head_dim
    every = forms(shape, page_size)
    if not (
        every
        and page_size % _BOX == 0
        and k_cache.is_contiguous()
        and v_cache.is_contiguous()
        and cuda_source.takes(q_THD[:, 0], k_cache.view(-1, head_dim))
        and cuda_source.takes(q_THD[:, 0], v_cache.view(-1, head_dim))
    ):
        return None
    for form in every:
        _load(form, q_THD.dtype == torch.float16, q_THD.device)
    return choose_form(shape, page_size)


def choose_form(shape: LaunchShape, page_size: int) -> Form | None:
    """By requests; None where Triton's kernel takes the launch.

    Measured on an H200 (benchmarks/attention.md, "Attention of few rows in CUDA C++"). A multiprocessor with several
    requests and KV heads has two blocks, of which one copies while the other ends. One with a single request and KV
    head has all of its shared memory for them, unless two blocks of it would hold a few hundred keys each anyway. Where
    numbers of keys differ much, the GPU had better give each request and KV head to the first multiprocessor that is
    free. Over many keys Triton's kernel splits those of too few requests among blocks.
    """
    every, num_items = forms(shape, page_size), shape.num_requests * shape.num_kv_heads
    if not every:
        return None
    if shape.most_kv > FEW_KEYS and _busy(num_items, every[0].blocks * shape.num_sms) < _MIN_BUSY:
        return None
    return every[0] if num_items <= shape.num_sms else every[-1]


@lru_cache(maxsize=4096)  # a step asks for each layer
def forms(shape: LaunchShape, page_size: int) -> tuple[Form, ...]:
    """What any number of requests may need; if there are two, the first is for one block of a multiprocessor."""
    if not shape.uniform or shape.head_dim not in _HEAD_DIMS or shape.max_q * shape.group > _MAX_ROWS:
        return ()
    heads = shape.num_kv_heads * shape.group, shape.num_kv_heads, shape.head_dim
    if shape.most_kv > FEW_KEYS:
        return (Form(shape.max_q, *heads, page_size, blocks=2, in_turn=False),)
    numbers = (2,) if shape.head_dim == _LINE else (1, 2)
    return tuple(Form(shape.max_q, *heads, page_size, blocks) for blocks in numbers)


def _busy(num_items: int, num_blocks: int) -> float:
    return num_items / (-(-num_items // num_blocks) * num_blocks)


def wgmma_attention(
    q_THD: Tensor,
    k_PSHD: Tensor,
    v_PSHD: Tensor,
    kv_len_B: Tensor,
    block_table_BP: Tensor,
    scale: float,
    out_THD: Tensor,
    form: Form,
) -> Tensor:
    """Causal attention of the last `form.rows` tokens of each request, into `out_THD`. The numbers of keys and the
    pages (int32) are read before the kernel waits."""
    device = q_THD.device
    num_items = kv_len_B.shape[0] * form.num_kv_heads
    assert kv_len_B.dtype == block_table_BP.dtype == torch.int32 and block_table_BP.stride(1) == 1
    assert q_THD.shape[0] >= form.rows * kv_len_B.shape[0]
    assert out_THD.is_contiguous() and out_THD.data_ptr() % 16 == 0, "it is stored in words of 16 bytes"
    at_once = form.blocks * cuda_source.num_multiprocessors(device)
    num_blocks = min(num_items, at_once) if form.in_turn else num_items
    cuda_source.launch(
        _load(form, q_THD.dtype == torch.float16, device),
        cuda_source.Grid(num_blocks, 32 * (_WARPS + 1), form.shared_bytes),
        device,
        _q_map(q_THD, form),
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
def source(form: Form, is_half: bool) -> cuda_source.Source:
    constants: dict[str, int | str] = dict(
        D=form.head_dim,
        Q=form.rows,
        HEADS=form.num_heads,
        KV_HEADS=form.num_kv_heads,
        PAGE=form.page_size,
        STAGES=form.num_stages,
        BLOCKS=form.blocks,
        SHARED=form.shared_bytes,
        HALF=int(is_half),
        MULTIPLY_KEYS=cuda_source.warpgroup_product(form.padded, is_half),
        MULTIPLY_VALUES=cuda_source.warpgroup_product(form.padded, is_half, first_by_column=True),
        SUMS=cuda_source.warpgroup_sums(form.padded),
    )
    return cuda_source.Source(_FILE, "wgmma_attention", tuple(constants.items()))


def _load(form: Form, is_half: bool, device: torch.device) -> cuda_source.Handle:
    return cuda_source.load(source(form, is_half), form.shared_bytes, device)


def _q_map(q_THD: Tensor, form: Form) -> cuda_source.Handle:
    """Dimensions from the innermost: a line's, heads, rows, lines."""
    num_rows, num_heads, head_dim = q_THD.shape
    box = _LINE, num_heads // form.num_kv_heads, form.rows, 1
    strides = head_dim, cuda_source.pitch(q_THD.flatten(1)), _LINE
    return cuda_source.tensor_map(q_THD, (_LINE, num_heads, num_rows, head_dim // _LINE), strides, box)


def _cache_map(cache_PSHD: Tensor) -> cuda_source.Handle:
    """Dimensions from the innermost: a line's, keys of an octet, lines, octets, heads."""
    pages, page_size, num_heads, head_dim = cache_PSHD.shape
    lines, key = head_dim // _LINE, num_heads * head_dim
    shape = _LINE, _OCTET, lines, pages * page_size // _OCTET, num_heads
    strides = key, _LINE, _OCTET * key, head_dim
    return cuda_source.tensor_map(cache_PSHD, shape, strides, (_LINE, _OCTET, lines, _BOX // _OCTET, 1))
