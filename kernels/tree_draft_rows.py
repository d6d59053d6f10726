"""Inputs of a tree drafter's passes: the accepted path first, then topk rows a request and level.

As in `draft_rows.py` the drafter's key at index p is made from the target's feature of token p and the embedding of
token p + 1, at rotary position p.
Legend: B requests, W = tree depth + 1 rows of a path, D nodes of a tree with its root, k rows a request and level, T
rows of a pass, S slots, L width of the token buffer, P pages of a slot, X status columns.
"""

import torch
from torch import Tensor

from specbench.kernels.buffers import Outcome, PassRows, Slots
from specbench.kernels.commit import COMMITTED, NEW_N
from specbench.kernels.decode_rows import ROWS_PER_PROGRAM, key_slot, store_row
from specbench.kernels.triton_support import dispatch, tl, triton


def tree_first_rows_ref(
    out: PassRows, feature_row_T: Tensor, outcome: Outcome, slot_B: Tensor, slots: Slots, num_nodes: int
) -> None:
    """Fills the inputs of the first pass for the decodes, W rows each, and `feature_row_T`.

    With n = tokens with KV before the round (the status block's new n less what was committed), row j stands at
    position n + j with the token of n + j + 1, of n + W keys; `feature_row_T` (int64) = b * D + path_BW[b, j] is the
    row of the verifying pass whose feature it takes. Rows behind the accepted ones are padded: the last accepted
    node's feature and whatever token the buffer holds.
    """
    path_BW, status_BX, tokens_SL = outcome.path_BW, outcome.status_BX, slots.tokens_SL
    assert path_BW is not None
    num_requests, width = out.kv_len_B.shape[0], path_BW.shape[1]
    slot_BW = slot_B[:num_requests].unsqueeze(1).expand(-1, width)
    n_B = (status_BX[:num_requests, NEW_N] - status_BX[:num_requests, COMMITTED]).long()
    at_BW = n_B.unsqueeze(1) + torch.arange(width, device=n_B.device)
    out.kv_len_B.copy_(n_B + width)
    out.position_T.copy_(at_BW.flatten())
    slots.write_key_slots(slot_BW.flatten(), at_BW.flatten(), out.kv_slot_T)
    after_BW = (at_BW + 1).clamp_(max=tokens_SL.shape[1] - 1)
    out.ids_T.copy_(tokens_SL[slot_BW, after_BW].clamp_(min=0).flatten())
    first_row_B1 = torch.arange(num_requests, device=n_B.device).unsqueeze(1) * num_nodes
    feature_row_T.copy_((first_row_B1 + path_BW[:num_requests]).flatten())


def tree_first_rows_triton(
    out: PassRows, feature_row_T: Tensor, outcome: Outcome, slot_B: Tensor, slots: Slots, num_nodes: int
) -> None:
    path_BW, status_BX = outcome.path_BW, outcome.status_BX
    assert path_BW is not None
    num_requests, width = out.kv_len_B.shape[0], path_BW.shape[1]
    if num_requests == 0:
        return
    assert path_BW.is_contiguous() and status_BX.is_contiguous(), "rows must be dense"
    _tree_first_rows_kernel[(triton.cdiv(num_requests * width, ROWS_PER_PROGRAM),)](
        path_BW,
        status_BX,
        slot_B,
        slots.args,
        out.args,
        feature_row_T,
        num_requests * width,
        D=num_nodes,
        W=width,
        X=status_BX.shape[1],
        PAGE=slots.page_size,
        BLOCK_T=ROWS_PER_PROGRAM,
        num_warps=4,
    )


tree_first_rows = dispatch(tree_first_rows_ref, tree_first_rows_triton)


def tree_level_rows_ref(out: PassRows, slot_B: Tensor, slots: Slots, topk: int, level: int) -> None:
    """Fills the inputs, ids excepted, of the pass of `level` (2 ..), k rows a request.

    With n = n_S of the slot: all rows stand at rotary position n + level - 2; row j's key goes to the slot of position
    n + (level - 2) k + j; there are n + (level - 1) k keys.
    """
    _check_level(level)
    n_B = slots.n_S[slot_B].long()
    out.kv_len_B.copy_(n_B + (level - 1) * topk)
    out.position_T.copy_((n_B + (level - 2)).repeat_interleave(topk))
    at_Bk = n_B.unsqueeze(1) + (level - 2) * topk + torch.arange(topk, device=n_B.device)
    slots.write_key_slots(slot_B.repeat_interleave(topk), at_Bk.flatten(), out.kv_slot_T)


def tree_level_rows_triton(out: PassRows, slot_B: Tensor, slots: Slots, topk: int, level: int) -> None:
    _check_level(level)
    num_rows = slot_B.shape[0] * topk
    if num_rows == 0:
        return
    _tree_level_rows_kernel[(triton.cdiv(num_rows, ROWS_PER_PROGRAM),)](
        slot_B,
        slots.args,
        out.args,
        num_rows,
        LEVEL=level,
        TOPK=topk,
        PAGE=slots.page_size,
        BLOCK_T=ROWS_PER_PROGRAM,
        num_warps=4,
    )


tree_level_rows = dispatch(tree_level_rows_ref, tree_level_rows_triton)


def _check_level(level: int) -> None:
    assert level >= 2, f"level {level} has no rows of its own; allowed: from 2 on"


@triton.jit(do_not_specialize=["num_rows"])
def _tree_first_rows_kernel(
    path_ptr,
    status_ptr,
    slot_ptr,
    slots,
    out,
    feature_row_ptr,
    num_rows,
    D: tl.constexpr,
    W: tl.constexpr,
    X: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    inside = row < num_rows
    request = (row // W).to(tl.int64)
    step = row % W
    slot = tl.load(slot_ptr + request, mask=inside, other=0).to(tl.int64)
    status_at = status_ptr + request * X
    n = tl.load(status_at + 3, mask=inside, other=0) - tl.load(status_at + 1, mask=inside, other=0)
    position = n.to(tl.int64) + step
    after = tl.minimum(position + 1, slots.tokens_width - 1)
    ids = tl.maximum(tl.load(slots.tokens + slot * slots.tokens_width + after, mask=inside, other=0), 0)
    node = tl.load(path_ptr + request * W + step, mask=inside, other=0).to(tl.int64)
    kv_slot = key_slot(slots, slot, position, PAGE, inside)
    store_row(out, row, ids, position, kv_slot, inside)
    tl.store(feature_row_ptr + row, request * D + node, mask=inside)
    tl.store(out.kv_len + request, (n + W).to(out.kv_len.dtype.element_ty), mask=inside & (step == 0))


@triton.jit(do_not_specialize=["num_rows"])
def _tree_level_rows_kernel(
    slot_ptr,
    slots,
    out,
    num_rows,
    LEVEL: tl.constexpr,
    TOPK: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    inside = row < num_rows
    request = row // TOPK
    node = row % TOPK
    slot = tl.load(slot_ptr + request, mask=inside, other=0).to(tl.int64)
    n = tl.load(slots.n + slot, mask=inside, other=0).to(tl.int64)
    key = n + (LEVEL - 2) * TOPK + node
    kv_slot = key_slot(slots, slot, key, PAGE, inside)
    tl.store(out.position + row, (n + (LEVEL - 2)).to(out.position.dtype.element_ty), mask=inside)
    tl.store(out.kv_slot + row, kv_slot, mask=inside)
    kv_len = n + (LEVEL - 1) * TOPK
    tl.store(out.kv_len + request, kv_len.to(out.kv_len.dtype.element_ty), mask=inside & (node == 0))
