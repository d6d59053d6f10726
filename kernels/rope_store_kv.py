"""Rotary position embedding of queries and keys, fused with the write of keys and values into their pages.

Qwen3 norms each query and KV head before it: with `head_norm_2D` the same launch does that too.

Rotate-half convention (GPT-NeoX, transformers' Llama): element d pairs with element d + D/2.
Legend: T rows of the step, X = (Hq + 2*Hkv)*D, D head size, M longest position, Hq and Hkv query and KV heads.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.kernels import compiled
from specbench.kernels.triton_support import dispatch, early_launch, tl, triton, wait_then_release


def rope_store_kv_ref(
    qkv_TX: Tensor,
    cos_sin_MD: Tensor,
    position_T: Tensor,
    kv_slot_T: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    num_q_heads: int,
    num_kv_heads: int,
    head_norm_2D: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Rotates q and k of each row, stores k and v at `kv_slot_T`, returns the rotated q as a dense [T, Hq, D] tensor.

    `qkv_TX` holds q, k and v heads in this order and is left as it is. `cos_sin_MD` is fp32: the first D/2 columns are
    the cosines of a position, the rest its sines. `k_cache` and `v_cache` are dense [pages, page_size, Hkv, D];
    `kv_slot_T` (int64) counts key slots from the start of the cache: page * page_size + offset. Rows may share a slot
    (padding); which one then stays is undefined. `head_norm_2D`: RMSNorm weights of a query head and of a KV head,
    where the model has them; `eps` is theirs. Norm and rotation are in fp32 and rounded once.
    """
    head_dim = cos_sin_MD.shape[1]
    num_rotated = num_q_heads + num_kv_heads
    heads_THD = qkv_TX.view(qkv_TX.shape[0], num_rotated + num_kv_heads, head_dim)
    cos, sin = cos_sin_MD.index_select(0, position_T).unsqueeze(1).chunk(2, dim=-1)
    wide_THD = heads_THD[:, :num_rotated].float()
    if head_norm_2D is not None:
        parts = zip(wide_THD.split([num_q_heads, num_kv_heads], dim=1), head_norm_2D.float(), strict=True)
        wide_THD = torch.cat([F.rms_norm(heads, (head_dim,), weight_D, eps) for heads, weight_D in parts], dim=1)
    first, second = wide_THD.chunk(2, dim=-1)
    rotated_THD = torch.empty((qkv_TX.shape[0], num_rotated, head_dim), dtype=torch.float32, device=qkv_TX.device)
    low, high = rotated_THD.chunk(2, dim=-1)
    torch.mul(first, cos, out=low).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=high).addcmul_(first, sin)
    rotated_THD = rotated_THD.to(qkv_TX.dtype)
    k_cache.view(-1, num_kv_heads, head_dim).index_copy_(0, kv_slot_T, rotated_THD[:, num_q_heads:])
    v_cache.view(-1, num_kv_heads, head_dim).index_copy_(0, kv_slot_T, heads_THD[:, num_rotated:])
    return rotated_THD[:, :num_q_heads].contiguous()


def rope_store_kv_triton(
    qkv_TX: Tensor,
    cos_sin_MD: Tensor,
    position_T: Tensor,
    kv_slot_T: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    num_q_heads: int,
    num_kv_heads: int,
    head_norm_2D: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    num_rows, head_dim = qkv_TX.shape[0], cos_sin_MD.shape[1]
    assert qkv_TX.stride(1) == 1 and cos_sin_MD.is_contiguous(), "columns must be dense"
    assert k_cache.is_contiguous() and v_cache.is_contiguous(), "the caches must be dense"
    assert head_norm_2D is None or head_norm_2D.is_contiguous(), "columns must be dense"
    q_THD = torch.empty((num_rows, num_q_heads, head_dim), dtype=qkv_TX.dtype, device=qkv_TX.device)
    if num_rows == 0:
        return q_THD
    block_heads = 16
    grid = (num_rows, triton.cdiv(num_q_heads + 2 * num_kv_heads, block_heads))
    _rope_store_kv_kernel[grid](
        qkv_TX,
        cos_sin_MD,
        position_T,
        kv_slot_T,
        k_cache,
        v_cache,
        q_THD,
        head_norm_2D,
        qkv_TX.stride(0),
        eps,
        HQ=num_q_heads,
        HKV=num_kv_heads,
        HALF=head_dim // 2,
        BLOCK_HALF=triton.next_power_of_2(head_dim // 2),
        BLOCK_HEADS=block_heads,
        num_warps=8,  # of 2 to 32 heads and 1 to 8 warps fastest or nearly so at 40 to 320 rows; fewer were not swept
        **early_launch(qkv_TX),
    )
    return q_THD


def rope_store_kv_c(
    qkv_TX: Tensor,
    cos_sin_MD: Tensor,
    position_T: Tensor,
    kv_slot_T: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    num_q_heads: int,
    num_kv_heads: int,
    head_norm_2D: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    num_rows, head_dim = qkv_TX.shape[0], cos_sin_MD.shape[1]
    assert qkv_TX.stride(1) == 1 and cos_sin_MD.is_contiguous(), "columns must be dense"
    assert k_cache.is_contiguous() and v_cache.is_contiguous(), "the caches must be dense"
    assert cos_sin_MD.dtype == torch.float32 and position_T.dtype == kv_slot_T.dtype == torch.int64
    assert k_cache.dtype == v_cache.dtype == torch.bfloat16 and head_dim <= compiled.WIDEST_HEAD
    assert head_norm_2D is None or (head_norm_2D.is_contiguous() and head_norm_2D.dtype == torch.bfloat16)
    position_T, kv_slot_T = position_T.contiguous(), kv_slot_T.contiguous()
    q_THD = qkv_TX.new_empty(num_rows, num_q_heads, head_dim)
    functions = compiled.library()
    assert functions is not None
    functions.specbench_rope_store_kv(
        qkv_TX.data_ptr(),
        cos_sin_MD.data_ptr(),
        position_T.data_ptr(),
        kv_slot_T.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        q_THD.data_ptr(),
        None if head_norm_2D is None else head_norm_2D.data_ptr(),
        num_rows,
        num_q_heads,
        num_kv_heads,
        head_dim,
        qkv_TX.stride(0),
        eps,
    )
    return q_THD


rope_store_kv = dispatch(rope_store_kv_ref, rope_store_kv_triton, rope_store_kv_c)


@triton.jit
def _rope_store_kv_kernel(
    qkv_ptr,
    cos_sin_ptr,
    position_ptr,
    kv_slot_ptr,
    k_cache_ptr,
    v_cache_ptr,
    q_ptr,
    head_norm_ptr,
    stride_qkv,
    eps,
    HQ: tl.constexpr,
    HKV: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_then_release(EARLY)
    row = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS))[:, None]
    column = tl.arange(0, BLOCK_HALF)[None, :]
    in_half = column < HALF
    inside = (head < HQ + 2 * HKV) & in_half
    head_at = qkv_ptr + row * stride_qkv + head * (2 * HALF) + column
    first = tl.load(head_at, mask=inside, other=0.0)
    second = tl.load(head_at + HALF, mask=inside, other=0.0)

    position = tl.load(position_ptr + row).to(tl.int64)
    cos_at = cos_sin_ptr + position * (2 * HALF) + column
    cos = tl.load(cos_at, mask=in_half, other=0.0)
    sin = tl.load(cos_at + HALF, mask=in_half, other=0.0)
    first_wide = first.to(tl.float32)
    second_wide = second.to(tl.float32)
    if head_norm_ptr is not None:
        squares = tl.sum(first_wide * first_wide + second_wide * second_wide, axis=1) / (2 * HALF)
        scale = (1.0 / tl.sqrt(squares + eps))[:, None]
        weight_at = head_norm_ptr + tl.where(head < HQ, 0, 2 * HALF) + column
        first_wide = first_wide * scale * tl.load(weight_at, mask=inside, other=0.0).to(tl.float32)
        second_wide = second_wide * scale * tl.load(weight_at + HALF, mask=inside, other=0.0).to(tl.float32)
    rotated_first = (first_wide * cos - second_wide * sin).to(first.dtype)
    rotated_second = (second_wide * cos + first_wide * sin).to(first.dtype)

    is_q = inside & (head < HQ)
    q_at = q_ptr + (row * HQ + head) * (2 * HALF) + column
    tl.store(q_at, rotated_first, mask=is_q)
    tl.store(q_at + HALF, rotated_second, mask=is_q)

    slot = tl.load(kv_slot_ptr + row).to(tl.int64)
    is_k = inside & (head >= HQ) & (head < HQ + HKV)
    k_at = k_cache_ptr + (slot * HKV + head - HQ) * (2 * HALF) + column
    tl.store(k_at, rotated_first, mask=is_k)
    tl.store(k_at + HALF, rotated_second, mask=is_k)
    is_v = inside & (head >= HQ + HKV)
    v_at = v_cache_ptr + (slot * HKV + head - HQ - HKV) * (2 * HALF) + column
    tl.store(v_at, first, mask=is_v)
    tl.store(v_at + HALF, second, mask=is_v)
