"""Which experts a row goes through, and its (row, expert) pairs sorted into blocks of one expert each.

Legend as in experts.py: T rows, E experts, k experts a row, N = T * k pairs (row-major), M pairs of a block, B blocks
that there may be.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.kernels.triton_support import tl, triton

_CHUNK = 1024  # pairs that the plan looks at together


@dataclass(frozen=True, slots=True)
class ExpertPlan:
    """`weight_N`: of each pair. `sorted_BM`: int32 pairs by block, N for none; `expert_B`: int32, -1 for no block."""

    weight_N: Tensor
    sorted_BM: Tensor
    expert_B: Tensor
    block_m: int

    @property
    def num_blocks(self) -> int:
        return self.expert_B.shape[0]


def route_ref(logits_TE: Tensor, k: int, normalised: bool) -> tuple[Tensor, Tensor]:
    """Weights [T, k] of the logits' type and experts (int32 [T, k]), the likeliest first; ties go to the lowest number.
    `normalised`: the weights of a row sum to 1."""
    prob_TE = logits_TE.float().softmax(-1)
    weight_Tk, expert_Tk = (found[:, :k] for found in prob_TE.sort(dim=1, descending=True, stable=True))
    if normalised:
        weight_Tk = weight_Tk / weight_Tk.sum(-1, keepdim=True)
    return weight_Tk.to(logits_TE.dtype), expert_Tk.int()


def plan_triton(logits_TE: Tensor, read_2: Tensor, k: int, normalised: bool, dtype: torch.dtype) -> ExpertPlan:
    """Uses two launches. `dtype`: of the weights of pairs; `read_2`: counts experts that had rows, and passes."""
    (num_rows, num_experts), device = logits_TE.shape, logits_TE.device
    pairs = num_rows * k
    block_m = min(128, max(16, triton.next_power_of_2(triton.cdiv(pairs, num_experts))))
    most_blocks = num_blocks(pairs, num_experts, block_m)

    weight_N = torch.empty(pairs, dtype=dtype, device=device)
    expert_N = torch.empty(pairs, dtype=torch.int32, device=device)
    sorted_BM = torch.empty(most_blocks * block_m, dtype=torch.int32, device=device)
    expert_B = torch.empty(most_blocks, dtype=torch.int32, device=device)

    padded = triton.next_power_of_2(num_experts)
    _route_kernel[(num_rows,)](
        logits_TE, weight_N, expert_N, num_experts, K=k, NORMALISED=normalised, BLOCK_E=padded,
        BLOCK_K=triton.next_power_of_2(k), num_warps=1,
    )  # fmt: skip
    chunk = min(_CHUNK, triton.next_power_of_2(pairs))
    _plan_experts_kernel[(num_experts,)](
        expert_N, sorted_BM, expert_B, read_2, pairs, most_blocks,
        M=block_m, BINS=2 * padded, CHUNK=chunk, num_warps=4,
    )  # fmt: skip
    return ExpertPlan(weight_N, sorted_BM, expert_B, block_m)


def num_blocks(pairs: int, num_experts: int, block_m: int) -> int:
    """Most blocks that `pairs` can need, each of one expert: all experts have a row, and one all the others."""
    hit = min(pairs, num_experts)
    return hit + (pairs - hit) // block_m


@triton.jit
def _route_kernel(
    logits_ptr, weight_ptr, expert_ptr, num_experts, K: tl.constexpr, NORMALISED: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, BLOCK_E)
    place = tl.arange(0, BLOCK_K)
    logit = tl.load(logits_ptr + row * num_experts + expert, mask=expert < num_experts, other=-float("inf"))
    logit = logit.to(tl.float32)
    prob = tl.exp(logit - tl.max(logit, axis=0))
    prob = prob / tl.sum(prob, axis=0)
    left = tl.where(expert < num_experts, prob, -1.0)
    weights = tl.zeros((BLOCK_K,), dtype=tl.float32)
    chosen = tl.zeros((BLOCK_K,), dtype=tl.int32)
    for index in tl.static_range(K):
        largest = tl.max(left, axis=0)
        # Rows that pad a graph may hold NaN, which equals nothing: their expert must be one that there is.
        best = tl.minimum(tl.min(tl.where(left == largest, expert, BLOCK_E), axis=0), num_experts - 1)
        weights = tl.where(place == index, largest, weights)
        chosen = tl.where(place == index, best, chosen)
        left = tl.where(expert == best, -1.0, left)
    if NORMALISED:
        weights = weights / tl.sum(weights, axis=0)
    weights = weights.to(logits_ptr.dtype.element_ty).to(weight_ptr.dtype.element_ty)
    tl.store(weight_ptr + row * K + place, weights, mask=place < K)
    tl.store(expert_ptr + row * K + place, chosen, mask=place < K)


@triton.jit
def _plan_experts_kernel(
    expert_ptr, sorted_ptr, block_expert_ptr, read_ptr, pairs, most_blocks, M: tl.constexpr,
    BINS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One program an expert; all count all pairs, which costs less than another launch."""
    mine = tl.program_id(0)
    bins = tl.arange(0, BINS)
    column = tl.arange(0, CHUNK)
    counts = tl.zeros((BINS,), dtype=tl.int32)
    start = 0
    while start < pairs:  # not range: triton's interpreter takes no argument of a launch there
        pair = start + column
        counts += tl.histogram(tl.load(expert_ptr + pair, mask=pair < pairs, other=BINS - 1), BINS)
        start += CHUNK
    counts = tl.where(bins == BINS - 1, 0, counts)
    blocks = (counts + M - 1) // M
    first = tl.sum(tl.where(bins < mine, blocks, 0), axis=0)
    own_blocks = tl.sum(tl.where(bins == mine, blocks, 0), axis=0)
    seen = first * M
    start = 0
    while start < pairs:
        pair = start + column
        is_mine = tl.load(expert_ptr + pair, mask=pair < pairs, other=BINS - 1) == mine
        rank = tl.cumsum(is_mine.to(tl.int32), axis=0) - 1
        tl.store(sorted_ptr + seen + rank, pair, mask=is_mine)
        seen += tl.sum(is_mine.to(tl.int32), axis=0)
        start += CHUNK
    padding = seen + tl.arange(0, M)
    tl.store(sorted_ptr + padding, padding * 0 + pairs, mask=padding < (first + own_blocks) * M)
    total = tl.sum(blocks, axis=0)
    start = 0
    while start < most_blocks:
        block = start + column
        tl.store(block_expert_ptr + first + block, block * 0 + mine, mask=block < own_blocks)
        if mine == 0:
            tl.store(block_expert_ptr + block, block * 0 - 1, mask=(block >= total) & (block < most_blocks))
        start += CHUNK
    if mine == 0:
        tl.store(read_ptr, tl.load(read_ptr) + tl.sum((counts > 0).to(tl.int64), axis=0))
        tl.store(read_ptr + 1, tl.load(read_ptr + 1) + 1)
