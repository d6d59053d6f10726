"""Triton kernels of paged attention: partial results of splits of the keys, and their merge.

Legend: B requests, q rows of one request, T rows of the step, G = Hq / Hkv query heads sharing one KV head, M packed
rows of one program (packed row m is row m // G of its request, head m % G of its KV head), N keys of one block, D head
dimension, S splits.

One program handles BLOCK_M packed rows of one request, one KV head and one split of the keys. Splits are cut on the
device from kv_len, so short contexts are spread over the splits too and a captured graph serves any length. Partial
results are merged by their log-sum-exp (Flash-Decoding, Dao et al. 2023).
"""

from specbench.kernels.triton_support import tl, triton, wait_for_inputs

# Stands for -inf in scores and maxima: exp2 of a difference of two of them is 1, not NaN, and the next real maximum (or
# the merge) multiplies whatever was summed up under it by exp2(-1e30) = 0.
_MASKED = tl.constexpr(-1.0e30)
# Of fp32 products: three TF32 passes keep fp32's accuracy on tensor cores; plain fp32 products spill registers.
_PRECISION = tl.constexpr("tf32x3")


@triton.jit
def _last_not_above(
    cu_q_ptr, num_requests, value, SCALE: tl.constexpr, DIVISOR: tl.constexpr, STEP: tl.constexpr, BLOCK_B: tl.constexpr
):
    """Last request b with cu_q[b] * SCALE // DIVISOR + b * STEP <= value."""
    offs_B = tl.arange(0, BLOCK_B)
    cu_q_B = tl.load(cu_q_ptr + offs_B, mask=offs_B < num_requests, other=0)
    not_above_B = (cu_q_B * SCALE // DIVISOR + offs_B * STEP <= value) & (offs_B < num_requests)
    return tl.sum(not_above_B.to(tl.int32)) - 1


@triton.jit
def _pages_of(table_ptr, block, offs_N, kv_len, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Pages of one block's keys: one number where pages hold whole blocks, else one a key [N]."""
    if PAGE_SIZE % BLOCK_N == 0:
        return tl.load(table_ptr + block // (PAGE_SIZE // BLOCK_N))
    else:
        keys_N = block * BLOCK_N + offs_N
        return tl.load(table_ptr + keys_N // PAGE_SIZE, mask=keys_N < kv_len, other=0)


_NOT_SPECIALIZED = ["num_requests", "num_rows", "table_stride"]


@triton.jit(do_not_specialize=_NOT_SPECIALIZED)
def paged_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,  # [T, Hq, D] in q's dtype, or partial results [S, T, Hq, D] in fp32
    lse_ptr,  # [S, T, Hq], base 2; unused without splits
    cu_q_ptr,
    kv_len_ptr,
    table_ptr,
    mask_ptr,  # uint8 [B, q, MASK_WIDTH]; unused without a mask
    scale_log2,
    num_requests,
    num_rows,
    q_stride,
    k_page_stride,
    k_slot_stride,
    v_page_stride,
    v_slot_stride,
    table_stride,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    UNIFORM_Q: tl.constexpr,
    MASK_WIDTH: tl.constexpr,  # own keys a tree mask covers; 0: no mask, rows are causal
    IS_SPLIT: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_inputs(EARLY)
    head = tl.program_id(0)
    tile = tl.program_id(1)
    split = tl.program_id(2)
    if UNIFORM_Q > 0:
        TILES: tl.constexpr = (UNIFORM_Q * GROUP + BLOCK_M - 1) // BLOCK_M
        b = tile // TILES
        tile -= b * TILES
        first_row = b * UNIFORM_Q
        q_len = UNIFORM_Q
    else:
        b = _last_not_above(cu_q_ptr, num_requests, tile, GROUP, BLOCK_M, 1, BLOCK_B)
        first_row = tl.load(cu_q_ptr + b)
        q_len = tl.load(cu_q_ptr + b + 1) - first_row
        tile -= first_row * GROUP // BLOCK_M + b
        if tile * BLOCK_M >= q_len * GROUP:
            return
    kv_len = tl.load(kv_len_ptr + b)
    prefix_len = kv_len - q_len
    num_blocks = tl.cdiv(kv_len, BLOCK_N)
    blocks_per_split = tl.cdiv(num_blocks, tl.num_programs(2))
    first_block = split * blocks_per_split
    if first_block >= num_blocks:
        return
    num_seen = kv_len
    if MASK_WIDTH == 0:
        num_seen = prefix_len + tl.minimum(q_len, ((tile + 1) * BLOCK_M - 1) // GROUP + 1)
    end_block = tl.minimum(first_block + blocks_per_split, tl.cdiv(num_seen, BLOCK_N))

    offs_M = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_N = tl.arange(0, BLOCK_N)
    offs_D = tl.arange(0, HEAD_DIM)
    row_M = offs_M // GROUP
    is_row_M = row_M < q_len
    head_M = head * GROUP + offs_M % GROUP
    step_row_M = (first_row + row_M).to(tl.int64)
    q_MD = tl.load(
        q_ptr + step_row_M[:, None] * q_stride + head_M[:, None] * HEAD_DIM + offs_D[None, :],
        mask=is_row_M[:, None],
        other=0.0,
    )
    table_ptr += b.to(tl.int64) * table_stride
    k_ptr += head * HEAD_DIM
    v_ptr += head * HEAD_DIM

    max_M = tl.full((BLOCK_M,), _MASKED, tl.float32)
    sum_M = tl.zeros((BLOCK_M,), tl.float32)
    acc_MD = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    # Pages are read one block ahead and carried: a lookup inside the iteration that uses it would take the stages that
    # Triton's pipeliner needs for keys and values in flight.
    pages = _pages_of(table_ptr, first_block, offs_N, kv_len, PAGE_SIZE, BLOCK_N)
    for block in range(first_block, end_block):
        keys_N = block * BLOCK_N + offs_N
        is_key_N = keys_N < kv_len
        slots_N = keys_N % PAGE_SIZE
        k_offs_N = pages.to(tl.int64) * k_page_stride + slots_N * k_slot_stride
        v_offs_N = pages.to(tl.int64) * v_page_stride + slots_N * v_slot_stride
        next_block = tl.minimum(block + 1, end_block - 1)
        pages = _pages_of(table_ptr, next_block, offs_N, kv_len, PAGE_SIZE, BLOCK_N)
        k_DN = tl.load(k_ptr + k_offs_N[None, :] + offs_D[:, None], mask=is_key_N[None, :], other=0.0)
        # Zeros rather than stale values: a weight of 0 would not silence a NaN.
        v_ND = tl.load(v_ptr + v_offs_N[:, None] + offs_D[None, :], mask=is_key_N[:, None], other=0.0)
        if MASK_WIDTH > 0:
            own_N = keys_N - (kv_len - MASK_WIDTH)
            sees_MN = tl.load(
                mask_ptr + (step_row_M * MASK_WIDTH)[:, None] + own_N[None, :],
                mask=is_row_M[:, None] & ((own_N >= 0) & (own_N < MASK_WIDTH))[None, :],
                other=0,
            )
            sees_MN = (own_N < 0)[None, :] | (sees_MN != 0)
        else:
            sees_MN = keys_N[None, :] <= (prefix_len + row_M)[:, None]
        score_MN = tl.dot(q_MD, k_DN, input_precision=_PRECISION) * scale_log2
        score_MN = tl.where(sees_MN, score_MN, _MASKED)
        new_max_M = tl.maximum(max_M, tl.max(score_MN, 1))
        rescale_M = tl.exp2(max_M - new_max_M)
        p_MN = tl.exp2(score_MN - new_max_M[:, None])
        sum_M = sum_M * rescale_M + tl.sum(p_MN, 1)
        acc_MD = acc_MD * rescale_M[:, None]
        acc_MD = tl.dot(p_MN.to(v_ND.dtype), v_ND, acc_MD, input_precision=_PRECISION)
        max_M = new_max_M

    # A tile may precede all keys of its split: nothing was summed, and the merge gives it no weight.
    sum_M = tl.where(sum_M == 0.0, 1.0, sum_M)
    acc_MD = acc_MD / sum_M[:, None]
    out_row_M = step_row_M
    if IS_SPLIT:
        out_row_M += split.to(tl.int64) * num_rows
        lse_ptrs = lse_ptr + out_row_M * (NUM_KV_HEADS * GROUP) + head_M
        tl.store(lse_ptrs, max_M + tl.log2(sum_M), mask=is_row_M)
    out_M = (out_row_M * (NUM_KV_HEADS * GROUP) + head_M) * HEAD_DIM
    tl.store(out_ptr + out_M[:, None] + offs_D[None, :], acc_MD.to(out_ptr.dtype.element_ty), mask=is_row_M[:, None])


@triton.jit(do_not_specialize=["num_requests", "num_rows", "num_splits"])
def merge_splits_kernel(
    partial_ptr,
    lse_ptr,
    out_ptr,
    cu_q_ptr,
    kv_len_ptr,
    num_requests,
    num_rows,
    num_splits,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    UNIFORM_Q: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One row and head: out = sum_s 2^(lse_s - max) partial_s / sum_s 2^(lse_s - max) over the splits that had work."""
    wait_for_inputs(EARLY)
    row = tl.program_id(0)
    head = tl.program_id(1)
    if UNIFORM_Q > 0:
        b = row // UNIFORM_Q
    else:
        b = _last_not_above(cu_q_ptr, num_requests, row, 1, 1, 0, BLOCK_B)
    num_blocks = tl.cdiv(tl.load(kv_len_ptr + b), BLOCK_N)
    num_used = tl.cdiv(num_blocks, tl.maximum(tl.cdiv(num_blocks, num_splits), 1))
    offs_S = tl.arange(0, BLOCK_S)
    offs_D = tl.arange(0, HEAD_DIM)
    is_used_S = offs_S < num_used
    row_S = (offs_S.to(tl.int64) * num_rows + row) * NUM_HEADS + head
    lse_S = tl.load(lse_ptr + row_S, mask=is_used_S, other=_MASKED)
    partial_SD = tl.load(partial_ptr + row_S[:, None] * HEAD_DIM + offs_D[None, :], mask=is_used_S[:, None], other=0.0)
    weight_S = tl.where(is_used_S, tl.exp2(lse_S - tl.max(lse_S, 0)), 0.0)
    merged_D = tl.sum(weight_S[:, None] * partial_SD, 0) / tl.sum(weight_S, 0)
    out_offset = (row.to(tl.int64) * NUM_HEADS + head) * HEAD_DIM
    tl.store(out_ptr + out_offset + offs_D, merged_D.to(out_ptr.dtype.element_ty))
