"""Attention in plain torch: the reference for the kernels, and what runs on a CPU.

Legend: T rows of the step, q rows and L keys of one request, H heads (Hq query, Hkv key-value), G = Hq / Hkv query
heads sharing one KV head, D head dimension, B requests, P pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from specbench.kernels import compiled
from specbench.kernels.attention.base import AttentionMetadata

# Up to this many query rows a KV head (q * G), the G heads are packed into the rows of one matrix product, which reads
# the keys once instead of G times: 2-12 times faster than enable_gqa at q = 1, 1.2-2 times at q = 5 to 16. Longer
# chunks gain little, and packing them would cost a mask G times the size.
_MAX_PACKED_ROWS = 256
# Up to this product of query rows (of one KV head), keys and requests, one compiled loop on one core is faster than
# torch's operations on two.
_MAX_COMPILED_SCORES = 6000


@dataclass(frozen=True, slots=True)
class _Request:
    """One request's rows and keys, as host values."""

    first_row: int
    q: int
    kv_len: int
    first_key: int
    """Flat position of key 0 in the cache when the pages are consecutive, else -1."""
    pages_P: Tensor
    """int64 pages of the keys; used only when they are not consecutive."""
    bias: Tensor | None
    """Additive mask [q, L], or [q*G, L] when packed; None when every row sees every key."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The metadata's tensors as they were, and the requests derived from them."""

    cu_q: list[int]
    kv_len: list[int]
    block_table_BP: Tensor
    tree_mask_BQM: Tensor | None
    requests: list[_Request]

    def is_for(self, meta: AttentionMetadata, cu_q: list[int], kv_len: list[int]) -> bool:
        """Whether the metadata, whose tensors may be rewritten in place, still holds these values."""
        return (
            self.cu_q == cu_q
            and self.kv_len == kv_len
            and torch.equal(self.block_table_BP, meta.block_table_BP)
            and _same_mask(self.tree_mask_BQM, meta.tree_mask_BQM)
        )


def _same_mask(a: Tensor | None, b: Tensor | None) -> bool:
    return b is None if a is None else b is not None and torch.equal(a, b)


class TorchAttention:
    """Reference and CPU backend. On a CUDA device it reads the metadata back to the host (a synchronisation)."""

    name = "torch"
    is_planned = False
    reads_lengths = True

    def forward(
        self,
        q_THD: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        meta: AttentionMetadata,
        scale: float,
        out_THD: Tensor | None = None,
    ) -> Tensor:
        """See AttentionBackend.forward. Raises ValueError for a request with fewer keys than rows or than its mask.

        Rows that belong to no request become 0.
        """
        num_pages, page_size, num_kv_heads, _ = k_cache.shape
        group = q_THD.shape[1] // num_kv_heads
        if compiled.takes(q_THD) and k_cache.stride() == v_cache.stride():
            attended_THD = _attend_compiled(q_THD, k_cache, v_cache, meta, scale, out_THD)
            if attended_THD is not None:
                return attended_THD
        requests = _plan(meta, group, page_size, q_THD.dtype).requests
        if len(requests) == 1 and requests[0].q == q_THD.shape[0]:
            only_THD = _attend(q_THD, k_cache, v_cache, requests[0], group, scale)
            return only_THD.contiguous() if out_THD is None else out_THD.copy_(only_THD)
        out_THD = torch.zeros_like(q_THD) if out_THD is None else out_THD.zero_()
        for request in requests:
            rows = slice(request.first_row, request.first_row + request.q)
            out_THD[rows] = _attend(q_THD[rows], k_cache, v_cache, request, group, scale)
        return out_THD


def _attend_compiled(
    q_THD: Tensor, k_cache: Tensor, v_cache: Tensor, meta: AttentionMetadata, scale: float, out_THD: Tensor | None
) -> Tensor | None:
    """None for more scores than `_MAX_COMPILED_SCORES`, and for lengths that `_check_keys` refuses: the function reads
    them itself, which costs a layer 5 us less than reading them here."""
    out_THD = torch.empty_like(q_THD) if out_THD is None else out_THD
    mask = meta.tree_mask_BQM
    _, page_size, num_kv_heads, head_dim = k_cache.shape
    page_stride, slot_stride, head_stride, dim_stride = k_cache.stride()
    assert (
        (head_stride, dim_stride) == (head_dim, 1)
        and head_dim <= compiled.WIDEST_HEAD
        and k_cache.dtype == v_cache.dtype == torch.bfloat16
    )
    assert q_THD.is_contiguous() and out_THD.is_contiguous() and (mask is None or mask.is_contiguous())
    assert meta.cu_q_B1.dtype == meta.kv_len_B.dtype == meta.block_table_BP.dtype == torch.int32
    assert meta.block_table_BP.stride(1) == 1
    functions = compiled.library()
    assert functions is not None
    status = functions.specbench_attention(
        q_THD.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        out_THD.data_ptr(),
        meta.cu_q_B1.data_ptr(),
        meta.kv_len_B.data_ptr(),
        meta.block_table_BP.data_ptr(),
        None if mask is None else mask.data_ptr(),
        meta.block_table_BP.stride(0),
        0 if mask is None else mask.shape[1],
        0 if mask is None else mask.shape[2],
        meta.kv_len_B.shape[0],
        q_THD.shape[0],
        q_THD.shape[1],
        num_kv_heads,
        head_dim,
        page_size,
        page_stride,
        slot_stride,
        scale,
        _MAX_COMPILED_SCORES,
    )
    if status < 0:
        raise MemoryError("no memory for the scores of attention")
    return out_THD if status == 0 else None


def _check_keys(meta: AttentionMetadata, b: int, q: int, num_keys: int) -> None:
    mask_width = 0 if meta.tree_mask_BQM is None else meta.tree_mask_BQM.shape[2]
    if q and num_keys < max(q, mask_width):
        needs = f"its {q} rows" if mask_width <= q else f"the {mask_width} keys of its mask"
        raise ValueError(f"kv_len of request {b} is {num_keys}; allowed: at least {needs}")


def _attend(q_qHD: Tensor, k_cache: Tensor, v_cache: Tensor, request: _Request, group: int, scale: float) -> Tensor:
    """One request's attention, [q, Hq, D]; not contiguous after torch's plain products on a GPU."""
    q, num_heads, head_dim = q_qHD.shape
    num_kv_heads = num_heads // group
    k_1HLD, v_1HLD = _by_head(k_cache, request), _by_head(v_cache, request)
    if q == 1:
        packed = q_qHD.reshape(1, num_kv_heads, group, head_dim)
        out = _product(packed, k_1HLD, v_1HLD, request.bias, scale)
        return out.reshape(1, num_heads, head_dim)
    q_HqGD = q_qHD.view(q, num_kv_heads, group, head_dim).transpose(0, 1)
    if _is_packed(q, group):
        packed = q_HqGD.reshape(1, num_kv_heads, q * group, head_dim)
        out = _product(packed, k_1HLD, v_1HLD, request.bias, scale)
        return out.reshape(num_kv_heads, q, group, head_dim).transpose(0, 1).reshape(q, num_heads, head_dim)
    shape = (num_kv_heads, group, request.kv_len, head_dim)
    k_HGLD, v_HGLD = k_1HLD.transpose(0, 1).expand(shape), v_1HLD.transpose(0, 1).expand(shape)
    out = _product(q_HqGD.transpose(1, 2), k_HGLD, v_HGLD, request.bias, scale)
    return out.permute(2, 0, 1, 3).reshape(q, num_heads, head_dim)


def _product(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """On a GPU by plain products: with a mask and keys broadcast over query heads, torch's memory-efficient kernel gets
    the last of 65, 129, 193, ... fp32 rows wrong (torch 2.11 on an H100; pytorch issue 191937)."""
    if not q.is_cuda:
        return scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
    with sdpa_kernel(SDPBackend.MATH):
        return in_blocks(q, k, v, bias, scale)


def in_blocks(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, most: int = 512) -> Tensor:
    """At most so many query rows at a time, since plain products keep all scores."""
    blocks = [(q, bias)] if bias is None else zip(q.split(most, -2), bias.split(most), strict=True)
    parts = [scaled_dot_product_attention(rows, k, v, attn_mask=b, scale=scale) for rows, b in blocks]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)


def _is_packed(q: int, group: int) -> bool:
    return q * group <= _MAX_PACKED_ROWS


def _by_head(cache: Tensor, request: _Request) -> Tensor:
    """Keys or values of one request, [1, Hkv, L, D]: one view of the cache when its pages are consecutive."""
    _, page_size, num_kv_heads, head_dim = cache.shape
    page_stride, slot_stride, head_stride, _ = cache.stride()
    if request.first_key < 0 or page_stride != page_size * slot_stride:
        gathered = cache.index_select(0, request.pages_P).view(1, -1, num_kv_heads, head_dim)
        return gathered[:, : request.kv_len].transpose(1, 2)
    # as_strided instead of view, narrow and transpose: each of those costs about a microsecond a layer.
    return cache.as_strided(
        (1, num_kv_heads, request.kv_len, head_dim),
        (0, head_stride, slot_stride, 1),
        cache.storage_offset() + request.first_key * slot_stride,
    )


def _plan(meta: AttentionMetadata, group: int, page_size: int, dtype: torch.dtype) -> _Plan:
    """The step's plan, made by the first layer and shared by the others as long as the metadata's values stay."""
    cu_q, kv_len = meta.cu_q_B1.tolist(), meta.kv_len_B.tolist()
    key = ("torch", group, page_size, dtype)
    plan = meta.cache.get(key)
    if plan is None or not plan.is_for(meta, cu_q, kv_len):
        plan = _make_plan(meta, cu_q, kv_len, group, page_size, dtype)
        meta.cache[key] = plan
    return plan


def _make_plan(
    meta: AttentionMetadata, cu_q: list[int], kv_len: list[int], group: int, page_size: int, dtype: torch.dtype
) -> _Plan:
    requests = []
    for b, num_keys in enumerate(kv_len):
        q = cu_q[b + 1] - cu_q[b]
        if q == 0:
            continue
        _check_keys(meta, b, q, num_keys)
        pages_P = meta.block_table_BP[b, : -(-num_keys // page_size)].long()
        consecutive = bool((pages_P[1:] - pages_P[:-1] == 1).all())
        bias = _bias(meta, b, q, num_keys, dtype)
        if bias is not None and _is_packed(q, group):
            bias = bias.repeat_interleave(group, 0)
        first_key = int(pages_P[0]) * page_size if consecutive else -1
        requests.append(_Request(cu_q[b], q, num_keys, first_key, pages_P, bias))
    mask = meta.tree_mask_BQM
    return _Plan(cu_q, kv_len, meta.block_table_BP.clone(), None if mask is None else mask.clone(), requests)


def _bias(meta: AttentionMetadata, b: int, q: int, kv_len: int, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores [q, L]: 0 where a row may look, -inf elsewhere; None where it sees all."""
    mask_BQM = meta.tree_mask_BQM
    if q == 1 and mask_BQM is None:
        return None
    device = meta.kv_len_B.device
    if mask_BQM is None:
        own_qM = torch.ones(q, q, dtype=torch.bool, device=device).tril_()
    else:
        own_qM = mask_BQM[b, :q]
    bias = torch.zeros(q, kv_len, dtype=dtype, device=device)
    bias[:, kv_len - own_qM.shape[1] :].masked_fill_(~own_qM, float("-inf"))
    return bias
