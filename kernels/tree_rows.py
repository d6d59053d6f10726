"""Inputs of the target's pass over draft trees: one row a node, at its depth's position, seeing its ancestors.

Legend: B requests of the step, T their rows, S slots, L width of the token buffer, P pages of a slot, D nodes of a tree
with its root, K = D - 1 drafts. The key slot: see `decode_rows.py`.
"""

import torch

from specbench.kernels.buffers import Rows, Slots
from specbench.kernels.decode_rows import prepare_rows_ref, prepare_rows_triton
from specbench.kernels.triton_support import dispatch, tl, triton


def prepare_tree_rows_ref(rows: Rows, slots: Slots) -> None:
    """Fills the target's inputs and `tree_mask_BDD` for one step, tree decodes and prompt chunks alike.

    As `prepare_rows`, but row j of a decode (num_drafts_B[b] > 0) stands at rotary position n_S[s] + depth_SD[s, j],
    while its key goes to the slot of position n_S[s] + j, and tree_mask_BDD[b] = mask_SDD[s]. `tree_mask_BDD` has as
    many requests as there are decodes; they come first and bring D rows each. Prompt chunks (num_drafts_B[b] <= 0) are
    as in `prepare_rows`.
    """
    assert slots.tree is not None and rows.tree_mask_BDD is not None
    prepare_rows_ref(rows, slots)
    depth_SD, mask_BDD = slots.tree.depth_SD, rows.tree_mask_BDD
    slot_T = rows.slot_B.index_select(0, rows.row_req_T)
    is_node_T = rows.num_drafts_B.index_select(0, rows.row_req_T) > 0
    # A prompt chunk may have more rows than a tree has nodes; its depths are not used, but the gather needs an index.
    depth_T = depth_SD[slot_T, rows.row_off_T.clamp(max=depth_SD.shape[1] - 1)]
    at_T = slots.n_S.index_select(0, slot_T).long()
    at_T += torch.where(is_node_T, depth_T, rows.row_off_T)
    rows.position_T.copy_(at_T)
    mask_BDD.copy_(slots.tree.mask_SDD.index_select(0, rows.slot_B[: mask_BDD.shape[0]]))


def prepare_tree_rows_triton(rows: Rows, slots: Slots) -> None:
    assert slots.tree is not None and rows.tree_mask_BDD is not None
    prepare_rows_triton(rows, slots)
    depth_SD, mask_SDD, mask_BDD = slots.tree.depth_SD, slots.tree.mask_SDD, rows.tree_mask_BDD
    num_decodes, size = mask_BDD.shape[:2]
    if num_decodes == 0:
        return
    assert all(x.is_contiguous() for x in (mask_BDD, mask_SDD, depth_SD)), "trees must be dense"
    _place_nodes_kernel[(num_decodes,)](
        rows.slot_B,
        slots.n_S,
        depth_SD,
        mask_SDD.view(torch.uint8),
        rows.position_T,
        mask_BDD.view(torch.uint8),
        D=size,
        BLOCK_D=triton.next_power_of_2(size),
        BLOCK_M=min(triton.next_power_of_2(size * size), 1024),
        num_warps=4,
    )


prepare_tree_rows = dispatch(prepare_tree_rows_ref, prepare_tree_rows_triton)


@triton.jit
def _place_nodes_kernel(
    slot_ptr,
    n_ptr,
    depth_ptr,
    mask_ptr,
    position_ptr,
    request_mask_ptr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """Positions of one decode's rows, which stand at b * D .. b * D + D - 1, and its mask."""
    request = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + request).to(tl.int64)
    node = tl.arange(0, BLOCK_D)
    depth = tl.load(depth_ptr + slot * D + node, mask=node < D, other=0)
    position = tl.load(n_ptr + slot).to(tl.int64) + depth
    tl.store(position_ptr + request * D + node, position.to(position_ptr.dtype.element_ty), mask=node < D)
    for start in range(0, D * D, BLOCK_M):
        cell = start + tl.arange(0, BLOCK_M)
        sees = tl.load(mask_ptr + slot * (D * D) + cell, mask=cell < D * D, other=0)
        tl.store(request_mask_ptr + request * (D * D) + cell, sees, mask=cell < D * D)
