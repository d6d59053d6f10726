"""Inputs of the target's pass over draft trees: one row a node, at its depth's position, seeing its ancestors.

Legend: B requests of the step, T their rows, S slots, L width of the token buffer, P pages of a slot, D nodes of a tree
with its root, K = D - 1 drafts. State tensors and the key slot: see `decode_rows.py`; trees (owned by the engine):
`depth_SD` int32 edges from the root, `mask_SDD` bool, row i sees node j.
"""

import torch
from torch import Tensor

from specbench.kernels.decode_rows import prepare_rows_ref, prepare_rows_triton
from specbench.kernels.triton_support import tl, triton, use_triton


def prepare_tree_rows(
    slot_B: Tensor,
    row_req_T: Tensor,
    row_off_T: Tensor,
    num_drafts_B: Tensor,
    q_len_B: Tensor,
    n_S: Tensor,
    tokens_SL: Tensor,
    drafts_SK: Tensor,
    depth_SD: Tensor,
    mask_SDD: Tensor,
    block_table_SP: Tensor,
    page_size: int,
    ids_T: Tensor,
    position_T: Tensor,
    kv_slot_T: Tensor,
    kv_len_B: Tensor,
    block_table_BP: Tensor,
    mask_BDD: Tensor,
) -> None:
    """Fills the target's inputs (the last six arguments) for one step, tree decodes and prompt chunks alike.

    As `prepare_rows`, but row j of a decode (num_drafts_B[b] > 0) stands at rotary position n_S[s] + depth_SD[s, j],
    while its key goes to the slot of position n_S[s] + j, and mask_BDD[b] = mask_SDD[s]. `mask_BDD` has as many
    requests as there are decodes; they come first and bring D rows each. Prompt chunks (num_drafts_B[b] <= 0) are as in
    `prepare_rows`.
    """
    op = prepare_tree_rows_triton if use_triton(tokens_SL) else prepare_tree_rows_ref
    op(
        slot_B,
        row_req_T,
        row_off_T,
        num_drafts_B,
        q_len_B,
        n_S,
        tokens_SL,
        drafts_SK,
        depth_SD,
        mask_SDD,
        block_table_SP,
        page_size,
        ids_T,
        position_T,
        kv_slot_T,
        kv_len_B,
        block_table_BP,
        mask_BDD,
    )


def prepare_tree_rows_ref(
    slot_B: Tensor,
    row_req_T: Tensor,
    row_off_T: Tensor,
    num_drafts_B: Tensor,
    q_len_B: Tensor,
    n_S: Tensor,
    tokens_SL: Tensor,
    drafts_SK: Tensor,
    depth_SD: Tensor,
    mask_SDD: Tensor,
    block_table_SP: Tensor,
    page_size: int,
    ids_T: Tensor,
    position_T: Tensor,
    kv_slot_T: Tensor,
    kv_len_B: Tensor,
    block_table_BP: Tensor,
    mask_BDD: Tensor,
) -> None:
    prepare_rows_ref(
        slot_B,
        row_req_T,
        row_off_T,
        num_drafts_B,
        q_len_B,
        n_S,
        tokens_SL,
        drafts_SK,
        block_table_SP,
        page_size,
        ids_T,
        position_T,
        kv_slot_T,
        kv_len_B,
        block_table_BP,
    )
    slot_T = slot_B[row_req_T]
    # A prompt chunk may have more rows than a tree has nodes; its depths are not used, but the gather needs an index.
    depth_T = depth_SD[slot_T, row_off_T.clamp(max=depth_SD.shape[1] - 1)]
    is_node_T = num_drafts_B[row_req_T] > 0
    position_T.copy_(n_S[slot_T].long() + torch.where(is_node_T, depth_T, row_off_T))
    mask_BDD.copy_(mask_SDD[slot_B[: mask_BDD.shape[0]]])


def prepare_tree_rows_triton(
    slot_B: Tensor,
    row_req_T: Tensor,
    row_off_T: Tensor,
    num_drafts_B: Tensor,
    q_len_B: Tensor,
    n_S: Tensor,
    tokens_SL: Tensor,
    drafts_SK: Tensor,
    depth_SD: Tensor,
    mask_SDD: Tensor,
    block_table_SP: Tensor,
    page_size: int,
    ids_T: Tensor,
    position_T: Tensor,
    kv_slot_T: Tensor,
    kv_len_B: Tensor,
    block_table_BP: Tensor,
    mask_BDD: Tensor,
) -> None:
    prepare_rows_triton(
        slot_B,
        row_req_T,
        row_off_T,
        num_drafts_B,
        q_len_B,
        n_S,
        tokens_SL,
        drafts_SK,
        block_table_SP,
        page_size,
        ids_T,
        position_T,
        kv_slot_T,
        kv_len_B,
        block_table_BP,
    )
    num_decodes, size = mask_BDD.shape[:2]
    if num_decodes == 0:
        return
    assert mask_BDD.is_contiguous() and mask_SDD.is_contiguous() and depth_SD.stride(1) == 1, "trees must be dense"
    _place_nodes_kernel[(num_decodes,)](
        slot_B,
        n_S,
        depth_SD,
        mask_SDD.view(torch.uint8),
        position_T,
        mask_BDD.view(torch.uint8),
        depth_SD.stride(0),
        D=size,
        BLOCK_D=triton.next_power_of_2(size),
        BLOCK_M=min(triton.next_power_of_2(size * size), 1024),
        num_warps=4,
    )


@triton.jit
def _place_nodes_kernel(
    slot_ptr,
    n_ptr,
    depth_ptr,
    mask_ptr,
    position_ptr,
    request_mask_ptr,
    stride_depth,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """Positions of one decode's rows, which stand at b * D .. b * D + D - 1, and its mask."""
    request = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + request).to(tl.int64)
    node = tl.arange(0, BLOCK_D)
    depth = tl.load(depth_ptr + slot * stride_depth + node, mask=node < D, other=0)
    position = tl.load(n_ptr + slot).to(tl.int64) + depth
    tl.store(position_ptr + request * D + node, position.to(position_ptr.dtype.element_ty), mask=node < D)
    for start in range(0, D * D, BLOCK_M):
        cell = start + tl.arange(0, BLOCK_M)
        sees = tl.load(mask_ptr + slot * (D * D) + cell, mask=cell < D * D, other=0)
        tl.store(request_mask_ptr + request * (D * D) + cell, sees, mask=cell < D * D)
