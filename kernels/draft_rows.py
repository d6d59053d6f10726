"""Inputs of the drafter's passes: the first one's rows, then one row a request of each later one.

EAGLE: the drafter's key at index p is made from the target's feature of token p and the embedding of token p + 1, with
rotary position p. Draft model: its key at index p is made from token p itself, so its later passes stand one position
further on (`shift` 1). The key slot: see `decode_rows.py`.
Legend: B requests, T rows of the first pass, S slots, L width of the token buffer, P pages of a slot, K draft depth.
"""

import torch
from torch import Tensor

from specbench.kernels.buffers import PassRows, Slots
from specbench.kernels.decode_rows import ROWS_PER_PROGRAM, key_slot, store_row
from specbench.kernels.triton_support import dispatch, early_launch, tl, triton, wait_for_inputs


def draft_first_ids_ref(
    slot_B: Tensor, row_req_T: Tensor, position_T: Tensor, tokens_SL: Tensor, ids_T: Tensor
) -> None:
    """Fills `ids_T` with the token after each row's position, tokens_SL[slot, position + 1].

    Padded rows (rejected drafts) get whatever the buffer holds there, as a valid id.
    """
    after_T = (position_T + 1).clamp_(max=tokens_SL.shape[1] - 1)
    token_T = tokens_SL[slot_B.index_select(0, row_req_T), after_T]
    ids_T.copy_(token_T.clamp_(min=0))


def draft_first_ids_triton(
    slot_B: Tensor, row_req_T: Tensor, position_T: Tensor, tokens_SL: Tensor, ids_T: Tensor
) -> None:
    num_rows = row_req_T.shape[0]
    if num_rows == 0:
        return
    _draft_first_ids_kernel[(triton.cdiv(num_rows, ROWS_PER_PROGRAM),)](
        slot_B,
        row_req_T,
        position_T,
        tokens_SL,
        ids_T,
        num_rows,
        tokens_SL.stride(0),
        tokens_SL.shape[1],
        BLOCK_T=ROWS_PER_PROGRAM,
        num_warps=4,
        **early_launch(slot_B),
    )


draft_first_ids = dispatch(draft_first_ids_ref, draft_first_ids_triton)


def draft_next_rows_ref(out: PassRows, slot_B: Tensor, slots: Slots, step: int, shift: int = 0) -> None:
    """Fills the inputs of the drafter's pass `step` (2..K), which makes draft number `step`; one row a request.

    The id is draft step - 1 (none becomes 0), at position n_S + step - 2 + shift, with one more key than that.
    `shift` is 0 for EAGLE, 1 for a draft model.
    """
    _check_step(step, slots)
    at_B = slots.n_S.index_select(0, slot_B).long()
    at_B += step - 2 + shift
    out.position_T.copy_(at_B)
    torch.add(at_B, 1, out=out.kv_len_B)
    slots.write_key_slots(slot_B, at_B, out.kv_slot_T)
    draft_B = slots.drafts_SK.select(1, step - 2).index_select(0, slot_B)
    out.ids_T.copy_(draft_B.clamp_(min=0))


def draft_next_rows_triton(out: PassRows, slot_B: Tensor, slots: Slots, step: int, shift: int = 0) -> None:
    _check_step(step, slots)
    num_requests = slot_B.shape[0]
    if num_requests == 0:
        return
    _draft_next_rows_kernel[(triton.cdiv(num_requests, ROWS_PER_PROGRAM),)](
        slot_B,
        slots.args,
        out.args,
        num_requests,
        COLUMN=step - 2,
        AHEAD=step - 2 + shift,
        PAGE=slots.page_size,
        BLOCK_B=ROWS_PER_PROGRAM,
        num_warps=4,
        **early_launch(slot_B),
    )


draft_next_rows = dispatch(draft_next_rows_ref, draft_next_rows_triton)


def _check_step(step: int, slots: Slots) -> None:
    """A later pass continues from a draft that the one before it stored."""
    most = slots.drafts_SK.shape[1]
    assert 2 <= step <= most, f"step {step} is outside 2..{most}"


def draft_pair_rows_ref(out: PassRows, slot_B: Tensor, slots: Slots) -> None:
    """Fills the inputs of a draft model's first pass: T = 2B rows, two a request.

    Rows 2b and 2b + 1 are the tokens at n - 1 and n (the pending one) at their own positions, with n + 1 keys; n is
    n_S[slot_B[b]], taken as 1 where it is 0 (dummy rows). After a fully accepted round the key of n - 1 is missing: the
    draft model never ran its own last draft (vLLM's draft_model.py adds a row for the same reason).
    """
    n_B = slots.n_S.index_select(0, slot_B).long().clamp_(min=1)
    torch.add(n_B, 1, out=out.kv_len_B)
    at_T = torch.stack([n_B - 1, n_B], dim=1).flatten()
    slot_T = slot_B.unsqueeze(1).expand(-1, 2).flatten()
    out.position_T.copy_(at_T)
    slots.write_key_slots(slot_T, at_T, out.kv_slot_T)
    token_T = slots.tokens_SL[slot_T, at_T.clamp_(max=slots.tokens_SL.shape[1] - 1)]
    out.ids_T.copy_(token_T.clamp_(min=0))


def draft_pair_rows_triton(out: PassRows, slot_B: Tensor, slots: Slots) -> None:
    num_requests = slot_B.shape[0]
    assert out.ids_T.shape[0] == 2 * num_requests, "two rows a request"
    if num_requests == 0:
        return
    grid = (triton.cdiv(2 * num_requests, ROWS_PER_PROGRAM),)
    _draft_pair_rows_kernel[grid](
        slot_B,
        slots.args,
        out.args,
        2 * num_requests,
        PAGE=slots.page_size,
        BLOCK_T=ROWS_PER_PROGRAM,
        num_warps=4,
        **early_launch(slot_B),
    )


draft_pair_rows = dispatch(draft_pair_rows_ref, draft_pair_rows_triton)


@triton.jit(do_not_specialize=["num_rows"])
def _draft_first_ids_kernel(
    slot_ptr,
    row_req_ptr,
    position_ptr,
    tokens_ptr,
    ids_ptr,
    num_rows,
    stride_tokens,
    tokens_width,
    BLOCK_T: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_inputs(EARLY)
    row = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    inside = row < num_rows
    request = tl.load(row_req_ptr + row, mask=inside, other=0).to(tl.int64)
    slot = tl.load(slot_ptr + request, mask=inside, other=0).to(tl.int64)
    after = tl.minimum(tl.load(position_ptr + row, mask=inside, other=0).to(tl.int64) + 1, tokens_width - 1)
    ids = tl.maximum(tl.load(tokens_ptr + slot * stride_tokens + after, mask=inside, other=0), 0)
    tl.store(ids_ptr + row, ids.to(ids_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_requests"])
def _draft_next_rows_kernel(
    slot_ptr,
    slots,
    out,
    num_requests,
    COLUMN: tl.constexpr,
    AHEAD: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_B: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_inputs(EARLY)
    request = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    inside = request < num_requests
    slot = tl.load(slot_ptr + request, mask=inside, other=0).to(tl.int64)
    position = tl.load(slots.n + slot, mask=inside, other=0).to(tl.int64) + AHEAD
    draft = tl.load(slots.drafts + slot * slots.drafts_width + COLUMN, mask=inside, other=0)
    kv_slot = key_slot(slots, slot, position, PAGE, inside)
    store_row(out, request, tl.maximum(draft, 0), position, kv_slot, inside)
    tl.store(out.kv_len + request, (position + 1).to(out.kv_len.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def _draft_pair_rows_kernel(
    slot_ptr, slots, out, num_rows, PAGE: tl.constexpr, BLOCK_T: tl.constexpr, EARLY: tl.constexpr
):
    wait_for_inputs(EARLY)
    row = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    inside = row < num_rows
    slot = tl.load(slot_ptr + row // 2, mask=inside, other=0).to(tl.int64)
    n = tl.maximum(tl.load(slots.n + slot, mask=inside, other=1).to(tl.int64), 1)
    position = n - 1 + row % 2
    token_at = slots.tokens + slot * slots.tokens_width + tl.minimum(position, slots.tokens_width - 1)
    ids = tl.maximum(tl.load(token_at, mask=inside, other=0), 0)
    kv_slot = key_slot(slots, slot, position, PAGE, inside)
    store_row(out, row, ids, position, kv_slot, inside)
    tl.store(out.kv_len + row // 2, (n + 1).to(out.kv_len.dtype.element_ty), mask=inside & (row % 2 == 0))
