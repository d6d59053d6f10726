"""The draft tree of a round from its candidates: EAGLE-2's re-ranking (Li et al. 2024, arXiv 2406.16858).

Legend: B requests, S slots, C candidates in the order of tree_expand.py, D nodes of a tree with its root, K = D - 1.
"""

import torch
from torch import Tensor

from specbench.kernels.buffers import Trees
from specbench.kernels.tree_expand import TreePool
from specbench.kernels.triton_support import dispatch, tl, triton

_RANK_BLOCK = 16  # candidates that are compared with all others at a time


def build_tree_ref(slot_B: Tensor, pool: TreePool, drafts_SK: Tensor, trees: Trees) -> None:
    """Writes each request's tree of the D - 1 best candidates into its slot of `drafts_SK` and `trees`.

    Nodes are in candidate order, so parents precede children. Ties go to the lower candidate, so the parent of a node
    is always a node (a child's score is never above its parent's). `drafts_SK` int64 tokens of nodes
    1 .. D-1; `parent_SD` int32 (root -1), `depth_SD` int32 edges from the root, `mask_SDD` bool ancestors and self.
    """
    size = trees.mask_SDD.shape[1]
    assert size - 1 <= pool.num_candidates, "a tree has at most as many drafts as there are candidates"
    chosen_BK = chosen_candidates(pool, size - 1)
    drafts_SK[slot_B] = pool.token_BC.gather(1, chosen_BK)

    above_BK = pool.parent_BC.gather(1, chosen_BK).long()
    node_BK = torch.searchsorted(chosen_BK, above_BK.clamp(min=0).contiguous()) + 1
    parent_BK = torch.where(above_BK < 0, 0, node_BK)
    parent_BD = torch.cat([torch.full_like(parent_BK[:, :1], -1), parent_BK], dim=1)
    depth_BD = torch.zeros_like(parent_BD)
    sees_BDD = torch.eye(size, dtype=torch.bool, device=parent_BD.device).repeat(len(parent_BD), 1, 1)
    ancestor_BD = parent_BD
    for _ in range(pool.depth):
        depth_BD += ancestor_BD >= 0
        # The root's own parent is taken for the root, which sees itself anyway.
        sees_BDD.scatter_(2, ancestor_BD.clamp(min=0).unsqueeze(2), True)
        ancestor_BD = torch.where(ancestor_BD > 0, parent_BD.gather(1, ancestor_BD.clamp(min=0)), -1)
    trees.parent_SD[slot_B] = parent_BD.int()
    trees.depth_SD[slot_B] = depth_BD.int()
    trees.mask_SDD[slot_B] = sees_BDD


def chosen_candidates(pool: TreePool, num: int) -> Tensor:
    """int64 [B, num]: the best candidates in their own order; of equal scores the lower ones."""
    order_BC = pool.score_BC.sort(dim=1, descending=True, stable=True).indices
    return order_BC[:, :num].sort(dim=1).values


def build_tree_triton(slot_B: Tensor, pool: TreePool, drafts_SK: Tensor, trees: Trees) -> None:
    mask_SDD = trees.mask_SDD
    size = mask_SDD.shape[1]
    assert size - 1 <= pool.num_candidates, "a tree has at most as many drafts as there are candidates"
    num_requests = slot_B.shape[0]
    dense = (mask_SDD, trees.parent_SD, trees.depth_SD, drafts_SK)
    assert all(x.is_contiguous() for x in dense) and drafts_SK.shape[1] == size - 1, "trees must be dense"
    if num_requests == 0:
        return
    _build_tree_kernel[(num_requests,)](
        pool.candidates,
        slot_B,
        drafts_SK,
        (trees.parent_SD, trees.depth_SD, mask_SDD.view(torch.uint8)),
        NUM_CANDIDATES=pool.num_candidates,
        D=size,
        DEPTH=pool.depth,
        BLOCK_C=max(triton.next_power_of_2(pool.num_candidates), _RANK_BLOCK),
        BLOCK_D=triton.next_power_of_2(size),
        RANK_BLOCK=_RANK_BLOCK,
        num_warps=4 if pool.num_candidates <= 512 else 8,
    )


build_tree = dispatch(build_tree_ref, build_tree_triton)


@triton.jit
def _build_tree_kernel(
    candidates,
    slot_ptr,
    drafts_ptr,
    trees,
    NUM_CANDIDATES: tl.constexpr,
    D: tl.constexpr,
    DEPTH: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_D: tl.constexpr,
    RANK_BLOCK: tl.constexpr,
):
    """One request. Ranks by comparing all pairs of candidates: no sort, and no iteration depends on another."""
    score_ptr, token_ptr, above_ptr = candidates
    parent_ptr, depth_ptr, mask_ptr = trees
    request = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + request).to(tl.int64)
    pool = request * NUM_CANDIDATES
    c = tl.arange(0, BLOCK_C)
    is_candidate = c < NUM_CANDIDATES
    score_C = tl.load(score_ptr + pool + c, mask=is_candidate, other=float("-inf"))
    rank_C = tl.zeros((BLOCK_C,), tl.int32)
    for start in range(0, NUM_CANDIDATES, RANK_BLOCK):
        other = start + tl.arange(0, RANK_BLOCK)
        other_score = tl.load(score_ptr + pool + other, mask=other < NUM_CANDIDATES, other=float("-inf"))
        before = (other_score[None, :] > score_C[:, None]) | (
            (other_score[None, :] == score_C[:, None]) & (other[None, :] < c[:, None])
        )
        rank_C += tl.sum((before & (other < NUM_CANDIDATES)[None, :]).to(tl.int32), axis=1)
    is_chosen_C = is_candidate & (rank_C < D - 1)
    node_C = tl.where(is_chosen_C, tl.cumsum(is_chosen_C.to(tl.int32), axis=0), 0)
    token_C = tl.load(token_ptr + pool + c, mask=is_candidate, other=0)
    above_C = tl.load(above_ptr + pool + c, mask=is_candidate, other=-1)

    parent_C = tl.where(above_C >= 0, tl.gather(node_C, tl.maximum(above_C, 0), axis=0), 0)
    tl.store(drafts_ptr + slot * (D - 1) + node_C - 1, token_C, mask=is_chosen_C)
    tl.store(parent_ptr + slot * D + node_C, parent_C, mask=is_chosen_C)
    tl.store(parent_ptr + slot * D, -1)

    # From here on a lane is a node, not a candidate. Parents change lanes through memory, hence the barrier.
    tl.debug_barrier()
    d = tl.arange(0, BLOCK_D)
    is_node = d < D
    parent_D = tl.load(parent_ptr + slot * D + d, mask=is_node, other=-1)
    depth_D = tl.zeros((BLOCK_D,), tl.int32)
    sees_DD = d[:, None] == d[None, :]
    ancestor_D = parent_D
    for _ in range(DEPTH):
        depth_D += (ancestor_D >= 0).to(tl.int32)
        is_ancestor_DD = ancestor_D[:, None] == d[None, :]
        sees_DD = sees_DD | is_ancestor_DD
        next_D = tl.sum(tl.where(is_ancestor_DD, parent_D[None, :], 0), axis=1)
        ancestor_D = tl.where(ancestor_D >= 0, next_D, -1)

    tl.store(depth_ptr + slot * D + d, depth_D, mask=is_node)
    cell = d[:, None] * D + d[None, :]
    tl.store(mask_ptr + slot * D * D + cell, sees_DD.to(tl.uint8), mask=is_node[:, None] & is_node[None, :])
