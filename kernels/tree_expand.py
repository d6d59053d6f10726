"""Growth of EAGLE-2's dynamic draft tree, one level at a time (Li et al. 2024, arXiv 2406.16858).

Every level's pass scores the k most likely children of each of its rows by the product of probabilities from the root
(here the sum of logs); all are candidates of the tree, and the k best of the level are the rows of the next pass. As in
SafeAILab/EAGLE (`topK_genrate`) a row sees its true ancestors' keys, whichever rows of earlier passes those were.
Legend: B requests, k children a node and rows a level (topk), S levels, V draft vocabulary, C = k + (S - 1) k^2
candidates. Candidate order: level 1's k, then of each level its k rows' k children; parents precede children.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.kernels.top_k import top_k_parts, top_k_ref
from specbench.kernels.triton_support import dispatch, tl, triton


@dataclass(slots=True)
class TreePool:
    """Candidates of a batch's trees, and the rows of the next pass. Filled in place by `expand_tree`."""

    topk: int
    depth: int
    score_BC: Tensor  # fp32, log-probability of the path from the root
    token_BC: Tensor  # int64, target ids
    parent_BC: Tensor  # int32, candidate; -1: the root
    node_Bk: Tensor  # int32, candidates that are the next pass' rows
    ids_Bk: Tensor  # int64, their tokens
    row_Bk: Tensor  # int64, the row of the pass just made whose state each of them continues (flat over the batch)
    masks: tuple[Tensor, ...]  # pass of level i = 2 .. S: bool [B, k, (i-1) k], which rows since level 2 a row sees

    @property
    def num_candidates(self) -> int:
        return self.score_BC.shape[1]

    @property
    def candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """The candidates as a single kernel argument."""
        return self.score_BC, self.token_BC, self.parent_BC


def num_candidates(topk: int, depth: int) -> int:
    return topk + (depth - 1) * topk * topk


def new_tree_pool(num_requests: int, topk: int, depth: int, device: torch.device) -> TreePool:
    def zeros(width: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(num_requests, width, dtype=dtype, device=device)

    size = num_candidates(topk, depth)
    masks = [
        torch.zeros(num_requests, topk, (level - 1) * topk, dtype=torch.bool, device=device)
        for level in range(2, depth + 1)
    ]
    for mask_BkM in masks:  # a row sees itself; level 2's rows see nothing else
        mask_BkM[:, :, -topk:] = torch.eye(topk, dtype=torch.bool, device=device)
    return TreePool(
        topk,
        depth,
        score_BC=zeros(size, torch.float32),
        token_BC=zeros(size, torch.int64),
        parent_BC=zeros(size, torch.int32),
        node_Bk=zeros(topk, torch.int32),
        ids_Bk=zeros(topk, torch.int64),
        row_Bk=zeros(topk, torch.int64),
        masks=tuple(masks),
    )


def expand_tree_ref(logits_RV: Tensor, d2t_V: Tensor | None, pool: TreePool, level: int) -> None:
    """Adds a level (1 .. S) from its pass' logits; R = B rows for level 1, B * k for later ones.

    `d2t_V` (int64) is what to add to a drafter's id to get the target's. Ties go to the lowest id and the lowest
    candidate, so a child never ranks before its parent.
    """
    _check_level(logits_RV, pool, level)
    num_requests, k = pool.ids_Bk.shape
    score_Rk, ids_Rk = top_k_ref(logits_RV, k)
    token_BG = (ids_Rk if d2t_V is None else ids_Rk + d2t_V[ids_Rk]).view(num_requests, -1)
    score_BG = score_Rk.view(num_requests, -1)
    if level > 1:
        score_BG = score_BG + pool.score_BC.gather(1, pool.node_Bk.long()).repeat_interleave(k, 1)
    grow_tree(pool, level, score_BG, token_BG)


def grow_tree(pool: TreePool, level: int, score_BG: Tensor, token_BG: Tensor) -> None:
    """Adds a level's children, k of each row, and chooses the rows of the next pass."""
    num_requests, k = pool.ids_Bk.shape
    parent_BG = torch.full_like(token_BG, -1)
    first = 0
    if level > 1:
        parent_BG = pool.node_Bk.long().repeat_interleave(k, 1)
        first = num_candidates(k, level - 1)
    group = slice(first, first + score_BG.shape[1])
    pool.score_BC[:, group] = score_BG
    pool.token_BC[:, group] = token_BG
    pool.parent_BC[:, group] = parent_BG.int()
    if level == pool.depth:
        return
    chosen_Bk = score_BG.sort(dim=1, descending=True, stable=True).indices[:, :k]
    pool.node_Bk.copy_(chosen_Bk + first)
    pool.ids_Bk.copy_(token_BG.gather(1, chosen_Bk))
    request_B1 = torch.arange(num_requests, device=chosen_Bk.device).unsqueeze(1)
    if level == 1:
        pool.row_Bk.copy_(request_B1.expand(-1, k))
        return
    row_Bk = chosen_Bk // k
    pool.row_Bk.copy_(request_B1 * k + row_Bk)
    pool.masks[level - 1][:, :, :-k] = pool.masks[level - 2][request_B1, row_Bk]


def expand_tree_triton(logits_RV: Tensor, d2t_V: Tensor | None, pool: TreePool, level: int) -> None:
    _check_level(logits_RV, pool, level)
    num_requests, k = pool.ids_Bk.shape
    if num_requests == 0:
        return
    parts_of_rows = top_k_parts(logits_RV, k)
    parts = parts_of_rows[0].shape[1]
    has_mask = 1 < level < pool.depth
    _expand_tree_kernel[(num_requests,)](
        parts_of_rows,
        d2t_V,
        pool.candidates,
        (pool.node_Bk, pool.ids_Bk, pool.row_Bk),
        tuple(mask.view(torch.uint8) for mask in pool.masks[level - 2 : level]) if has_mask else None,
        parts,
        0 if level == 1 else num_candidates(k, level - 1),
        pool.num_candidates,
        (level - 1) * k,
        TOPK=k,
        ROWS=1 if level == 1 else k,
        HAS_PARENT=level > 1,
        IS_LAST=level == pool.depth,
        BLOCK_R=1 if level == 1 else triton.next_power_of_2(k),
        BLOCK_K=triton.next_power_of_2(k),
        BLOCK_N=triton.next_power_of_2(parts),
        BLOCK_P=triton.next_power_of_2(parts * k),
        BLOCK_M=triton.next_power_of_2(pool.depth * k),
        num_warps=4,
    )


expand_tree = dispatch(expand_tree_ref, expand_tree_triton)


def _check_level(logits_RV: Tensor, pool: TreePool, level: int) -> None:
    rows = 1 if level == 1 else pool.topk
    assert 1 <= level <= pool.depth and logits_RV.shape[0] == rows * pool.score_BC.shape[0], "one row a node"


@triton.jit(do_not_specialize=["parts", "first", "num_candidates", "mask_width"])
def _expand_tree_kernel(
    parts_of_rows,
    d2t_ptr,
    candidates,
    next_rows,
    masks,
    parts,
    first,
    num_candidates,
    mask_width,
    TOPK: tl.constexpr,
    ROWS: tl.constexpr,
    HAS_PARENT: tl.constexpr,
    IS_LAST: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """One request: its rows' parts to k children each [R, k], those into the pool, the k best of them the next rows."""
    NONE: tl.constexpr = 2147483647
    best_ptr, best_ids_ptr, mass_ptr = parts_of_rows
    score_ptr, token_ptr, parent_ptr = candidates
    node_ptr, ids_ptr, row_ptr = next_rows
    request = tl.program_id(0).to(tl.int64)
    r = tl.arange(0, BLOCK_R)
    c = tl.arange(0, BLOCK_K)
    is_row = r < ROWS
    first_part = (request * ROWS + r) * parts

    part = tl.arange(0, BLOCK_N)
    is_part = is_row[:, None] & (part < parts)[None, :]
    mass_at = mass_ptr + (first_part[:, None] + part[None, :]) * 2
    largest_RN = tl.load(mass_at, mask=is_part, other=float("-inf"))
    sum_RN = tl.load(mass_at + 1, mask=is_part, other=0.0)
    largest_R = tl.max(largest_RN, axis=1)
    scaled_RN = tl.where(largest_RN > float("-inf"), sum_RN * tl.exp(largest_RN - largest_R[:, None]), 0.0)
    lse_R = largest_R + tl.log(tl.sum(scaled_RN, axis=1))

    p = tl.arange(0, BLOCK_P)
    is_candidate = is_row[:, None] & (p < parts * TOPK)[None, :]
    candidate_at = first_part[:, None] * TOPK + p[None, :]
    z_RP = tl.load(best_ptr + candidate_at, mask=is_candidate, other=float("-inf"))
    id_RP = tl.load(best_ids_ptr + candidate_at, mask=is_candidate, other=NONE)
    z_Rk = tl.full((BLOCK_R, BLOCK_K), float("-inf"), tl.float32)
    id_Rk = tl.zeros((BLOCK_R, BLOCK_K), tl.int32)
    for place in range(TOPK):
        best_R = tl.max(z_RP, axis=1)
        chosen_R = tl.min(tl.where(z_RP == best_R[:, None], id_RP, NONE), axis=1)
        z_Rk = tl.where((c == place)[None, :], best_R[:, None], z_Rk)
        id_Rk = tl.where((c == place)[None, :], chosen_R[:, None], id_Rk)
        is_chosen = id_RP == chosen_R[:, None]
        z_RP = tl.where(is_chosen, float("-inf"), z_RP)
        id_RP = tl.where(is_chosen, NONE, id_RP)

    score_Rk = tl.where(z_Rk > float("-inf"), tl.minimum(z_Rk - lse_R[:, None], 0.0), float("-inf"))
    parent_R = tl.full((BLOCK_R,), -1, tl.int32)
    pool_row = request * num_candidates
    if HAS_PARENT:
        parent_R = tl.load(node_ptr + request * TOPK + r, mask=is_row, other=0)
        score_Rk += tl.load(score_ptr + pool_row + parent_R, mask=is_row, other=0.0)[:, None]
    inside = is_row[:, None] & (c < TOPK)[None, :]
    token_Rk = id_Rk.to(tl.int64)
    if d2t_ptr is not None:
        token_Rk += tl.load(d2t_ptr + id_Rk, mask=inside, other=0).to(tl.int64)
    group_Rk = r[:, None] * TOPK + c[None, :]
    pool_at = pool_row + first + group_Rk
    tl.store(score_ptr + pool_at, score_Rk, mask=inside)
    tl.store(token_ptr + pool_at, token_Rk, mask=inside)
    tl.store(parent_ptr + pool_at, tl.broadcast_to(parent_R[:, None], (BLOCK_R, BLOCK_K)), mask=inside)

    if not IS_LAST:
        left_Rk = tl.where(inside, score_Rk, float("-inf"))
        flat_Rk = tl.where(inside, group_Rk, NONE)
        chosen_k = tl.zeros((BLOCK_K,), tl.int32)
        ids_k = tl.zeros((BLOCK_K,), tl.int64)
        for place in range(TOPK):
            best = tl.max(tl.max(left_Rk, axis=1), axis=0)
            chosen = tl.min(tl.min(tl.where(left_Rk == best, flat_Rk, NONE), axis=1), axis=0)
            is_it = flat_Rk == chosen
            token = tl.sum(tl.sum(tl.where(is_it, token_Rk, 0), axis=1), axis=0)
            chosen_k = tl.where(c == place, chosen, chosen_k)
            ids_k = tl.where(c == place, token, ids_k)
            left_Rk = tl.where(is_it, float("-inf"), left_Rk)
            flat_Rk = tl.where(is_it, NONE, flat_Rk)
        next_at = request * TOPK + c
        # The nodes just read are replaced: all reads of this program must be over.
        tl.debug_barrier()
        tl.store(node_ptr + next_at, chosen_k + first, mask=c < TOPK)
        tl.store(ids_ptr + next_at, ids_k, mask=c < TOPK)
        row_k = chosen_k // TOPK
        tl.store(row_ptr + next_at, request * ROWS + row_k, mask=c < TOPK)
        if masks is not None:
            mask_ptr, next_mask_ptr = masks
            m = tl.arange(0, BLOCK_M)
            cell = (c < TOPK)[:, None] & (m < mask_width)[None, :]
            sees_at = (request * TOPK + row_k)[:, None] * mask_width + m[None, :]
            sees = tl.load(mask_ptr + sees_at, mask=cell, other=0)
            tl.store(next_mask_ptr + next_at[:, None] * (mask_width + TOPK) + m[None, :], sees, mask=cell)
