"""Acceptance of a tree of drafts and the commit of the accepted path, one program a request.

The target's token y_i is drawn for every node's row; from the root on, a child is accepted where its draft equals the y
of its parent. With deterministic drafts and noise keyed by position that is exact for greedy and random rows alike: y
of the accepted path is what decoding without drafts would have drawn. The walk is that of SGLang's VerifyTreeGreedy
(sgl-kernel, eagle_utils.cu).
Legend: B requests, S slots, L width of the token buffer, D nodes of a tree with its root, K = D - 1 drafts, W = tree
depth + 1 nodes of a path with its root, E stop ids of a slot (padded with -1), X = 6 + W status columns.
"""

import torch
from torch import Tensor

from specbench.kernels.buffers import Outcome, Rows, Slots
from specbench.kernels.commit import NUM_STATUS_COLUMNS, RUNNING, Accepted, commit_ref, commit_row
from specbench.kernels.triton_support import dispatch, tl, triton


def accept_tree_ref(
    sampled_BD: Tensor, rows: Rows, slots: Slots, outcome: Outcome, forced_B: Tensor | None = None
) -> None:
    """Accepts, commits and reports one round; updates `n_S`, `tokens_SL`, `done_S`, fills `outcome`.

    A node i > 0 exists if drafts_SK[s, i - 1] >= 0 and num_drafts_B[b] > 0; nodes follow their parents. From
    the root, the child of lowest index whose draft equals y of the current node becomes current, until there is none:
    a nodes are accepted, and y of the root and of those a is emitted. `forced_B` (synthetic acceptance) takes the first
    child min(forced, as far as there is one) times instead and emits those drafts before the last node's y.
    Commit, stop ids, limit, done slots and prompt chunks (num_drafts 0 and -1) exactly as in `accept_chain`.

    `status_BX` (int32): a, c, done, the new n, how many nodes there were without the root, the deepest one's depth,
    then the emitted tokens with -1 from column c on.
    `path_BW` (int64): the path's node of each depth, 0 first; behind the last accepted node it is repeated.
    `sample_row_B` (int64) = base_row_B + a: where base_row_B is the first row of each request in the drafter's first
    pass (W rows for a decode, a chunk's last row for a prompt), the row that the drafter continues from.
    A done slot may occur several times in `slot_B`, a running one only once.
    """
    assert slots.tree is not None and outcome.path_BW is not None
    slot_B, num_drafts_B, tree, path_BW = rows.slot_B, rows.num_drafts_B, slots.tree, outcome.path_BW
    size = sampled_BD.shape[1]
    active_B = num_drafts_B >= 0
    active_B &= slots.done_S.index_select(0, slot_B) == RUNNING
    draft_BK = slots.drafts_SK.index_select(0, slot_B)[:, : size - 1]
    parent_BK = tree.parent_SD.index_select(0, slot_B)[:, 1:size]
    exists_BK = draft_BK >= 0
    exists_BK &= (num_drafts_B > 0).unsqueeze(1)
    exists_BK &= active_B.unsqueeze(1)
    offered_B = exists_BK.sum(dim=1)
    depth_B = tree.depth_SD.index_select(0, slot_B)[:, 1:size].masked_fill(~exists_BK, 0).amax(dim=1)

    node_K = torch.arange(1, size, device=sampled_BD.device)
    node_B1 = torch.zeros_like(slot_B).unsqueeze(1)
    accepted_B1 = torch.zeros_like(node_B1)
    walking_B1 = torch.ones_like(node_B1, dtype=torch.bool)
    path_BW[:, 0].zero_()
    emitted_BW = torch.empty_like(path_BW)
    for step in range(1, path_BW.shape[1]):
        y_B1 = sampled_BD.gather(1, node_B1)
        is_child_BK = exists_BK & (parent_BK == node_B1)
        if forced_B is None:
            is_child_BK &= draft_BK == y_B1
        else:
            walking_B1 &= (forced_B >= step).unsqueeze(1)
        child_B1 = torch.where(is_child_BK, node_K, size).amin(dim=1, keepdim=True)
        walking_B1 &= child_B1 < size
        node_B1 = torch.where(walking_B1, child_B1, node_B1)
        accepted_B1 += walking_B1
        path_BW[:, step].copy_(node_B1.squeeze(1))
        draft_B1 = draft_BK.gather(1, (node_B1 - 1).clamp_(min=0))
        emitted_BW[:, step - 1].copy_(torch.where(walking_B1, draft_B1, y_B1).squeeze(1))
    emitted_BW[:, -1].copy_(sampled_BD.gather(1, node_B1).squeeze(1))
    accepted_B = accepted_B1.squeeze(1)
    torch.add(rows.base_row_B, accepted_B, out=outcome.sample_row_B)
    accepted = Accepted(emitted_BW, accepted_B, offered_B, depth_B, active_B)
    commit_ref(accepted, slot_B, slots, outcome.status_BX)


def accept_tree_triton(
    sampled_BD: Tensor, rows: Rows, slots: Slots, outcome: Outcome, forced_B: Tensor | None = None
) -> None:
    assert slots.tree is not None and outcome.path_BW is not None
    status_BX, path_BW, tree = outcome.status_BX, outcome.path_BW, slots.tree
    num_requests, size = sampled_BD.shape
    width, num_stops = path_BW.shape[1], slots.stop_SE.shape[1]
    assert status_BX.shape[1] == NUM_STATUS_COLUMNS + width, "status is [B, 6 + W]"
    assert tree.parent_SD.shape[1] == size == slots.drafts_SK.shape[1] + 1, "D is K + 1"
    dense = (sampled_BD, tree.parent_SD, tree.depth_SD, path_BW, status_BX)
    assert all(x.is_contiguous() for x in dense), "rows must be dense"
    if num_requests == 0:
        return
    _accept_tree_kernel[(num_requests,)](
        sampled_BD,
        rows.slot_B,
        rows.num_drafts_B,
        rows.base_row_B,
        forced_B,
        slots.args,
        tree.parent_SD,
        tree.depth_SD,
        status_BX,
        outcome.sample_row_B,
        path_BW,
        D=size,
        W=width,
        E=num_stops,
        BLOCK_D=triton.next_power_of_2(size),
        BLOCK_W=triton.next_power_of_2(width),
        BLOCK_E=triton.next_power_of_2(max(num_stops, 1)),
        num_warps=1,
    )


accept_tree = dispatch(accept_tree_ref, accept_tree_triton)


@triton.jit
def _accept_tree_kernel(
    sampled_ptr,
    slot_ptr,
    num_drafts_ptr,
    base_row_ptr,
    forced_ptr,
    slots,
    parent_ptr,
    depth_ptr,
    status_ptr,
    sample_row_ptr,
    path_ptr,
    D: tl.constexpr,
    W: tl.constexpr,
    E: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + request).to(tl.int64)
    num_drafts = tl.load(num_drafts_ptr + request).to(tl.int32)
    active = (num_drafts >= 0) & (tl.load(slots.done + slot) == 0)

    node = tl.arange(0, BLOCK_D)
    y = tl.load(sampled_ptr + request * D + node, mask=node < D, other=-1).to(tl.int64)
    is_node = (node > 0) & (node < D) & active & (num_drafts > 0)
    draft = tl.load(slots.drafts + slot * (D - 1) + node - 1, mask=is_node, other=-1).to(tl.int64)
    exists = is_node & (draft >= 0)
    parent = tl.load(parent_ptr + slot * D + node, mask=exists, other=-2)
    depth = tl.load(depth_ptr + slot * D + node, mask=exists, other=0)
    offered = tl.sum(exists.to(tl.int32), axis=0)
    deepest = tl.max(depth, axis=0)
    most = W - 1
    if forced_ptr is not None:
        most = tl.minimum(tl.load(forced_ptr + request).to(tl.int32), W - 1)

    column = tl.arange(0, BLOCK_W)
    path = tl.zeros((BLOCK_W,), tl.int32)
    emitted = tl.full((BLOCK_W,), -1, tl.int64)
    current = 0
    accepted = 0
    for step in tl.static_range(1, W):
        # Every value is read from registers: nodes are few, and a masked sum picks one.
        wanted = tl.sum(tl.where(node == current, y, 0), axis=0)
        is_child = exists & (parent == current)
        if forced_ptr is None:
            is_child = is_child & (draft == wanted)
        child = tl.min(tl.where(is_child, node, BLOCK_D), axis=0)
        walks = (child < BLOCK_D) & (accepted == step - 1) & (step <= most)
        current = tl.where(walks, child, current)
        token = tl.where(walks, tl.sum(tl.where(node == child, draft, 0), axis=0), wanted)
        accepted += walks.to(tl.int32)
        path = tl.where(column == step, current, path)
        emitted = tl.where(column == step - 1, token, emitted)
    last = tl.sum(tl.where(node == current, y, 0), axis=0)
    emitted = tl.where(column == W - 1, last, emitted)

    commit_row(emitted, accepted, offered, deepest, active, request, slot, slots, status_ptr, W, E, BLOCK_E)
    tl.store(path_ptr + request * W + column, path.to(path_ptr.dtype.element_ty), mask=column < W)
    tl.store(sample_row_ptr + request, tl.load(base_row_ptr + request).to(tl.int64) + accepted)
