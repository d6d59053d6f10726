"""Rows of a drafter's only pass of a round: the verified rows again, and placeholders for the drafts not known yet.

Each request has M rows more than in the target's pass, behind its own. Rows up to the one that the drafter continues
from are real (the token after their position, true features); all others are placeholders, at the positions that
follow. The first draft comes from the last real row, draft i + 1 from the i-th placeholder behind it.
Legend: B requests, T rows of the target's pass, N = T + B * M rows of this one, S slots, L width of the token buffer.
"""

import torch
from torch import Tensor

from specbench.kernels.buffers import Outcome, PassRows, Rows, Slots
from specbench.kernels.decode_rows import ROWS_PER_PROGRAM, key_slot, store_row
from specbench.kernels.triton_support import dispatch, tl, triton


def draft_one_pass_rows_ref(
    out: PassRows, source_N: Tensor, rows: Rows, cu_q_B1: Tensor, outcome: Outcome, slots: Slots, placeholder_id: int
) -> None:
    """Fills `out`, and `source_N` (int64): the target's row whose features a row takes, T for a placeholder.

    `cu_q_B1`: the first row of each request in the target's pass, and T. Padding (`q_len_B` 0) keeps no keys.
    Positions: those of the target's rows, then the M behind the request's last.
    """
    num_requests, num_rows = rows.slot_B.shape[0], rows.row_req_T.shape[0]
    more = (source_N.shape[0] - num_rows) // max(num_requests, 1)
    device = source_N.device
    end_B = cu_q_B1[1:].long()
    request_E = torch.arange(num_requests, device=device).unsqueeze(1).expand(-1, more).flatten()
    behind_E = torch.arange(more, device=device).expand(num_requests, -1).flatten()
    end_E = end_B.index_select(0, request_E)
    request_N = torch.cat([rows.row_req_T, request_E])
    target_row_N = torch.cat([torch.arange(num_rows, device=device), end_E + behind_E])
    place_N = target_row_N + more * request_N

    at_E = rows.position_T.index_select(0, (end_E - 1).clamp_(min=0)) + 1 + behind_E
    position_N = torch.cat([rows.position_T, at_E])
    slot_N = rows.slot_B.index_select(0, request_N)
    kv_slot_E = torch.empty_like(at_E)
    slots.write_key_slots(slot_N[num_rows:], at_E, kv_slot_E)

    # Row numbers of the drafter's pass count like the target's: nothing is left out of a chain.
    last_real_B = torch.minimum(outcome.sample_row_B, end_B - 1)
    is_real_N = target_row_N <= last_real_B.index_select(0, request_N)
    after_N = (position_N + 1).clamp_(max=slots.tokens_SL.shape[1] - 1)
    token_N = slots.tokens_SL[slot_N, after_N].clamp_(min=0)

    out.ids_T.index_copy_(0, place_N, torch.where(is_real_N, token_N, placeholder_id))
    out.position_T.index_copy_(0, place_N, position_N)
    out.kv_slot_T.index_copy_(0, place_N, torch.cat([rows.kv_slot_T, kv_slot_E]))
    source_N.index_copy_(0, place_N, torch.where(is_real_N, target_row_N, num_rows))
    torch.mul(rows.kv_len_B + more, rows.q_len_B > 0, out=out.kv_len_B)


def draft_one_pass_rows_triton(
    out: PassRows, source_N: Tensor, rows: Rows, cu_q_B1: Tensor, outcome: Outcome, slots: Slots, placeholder_id: int
) -> None:
    num_requests, num_rows, num = rows.slot_B.shape[0], rows.row_req_T.shape[0], source_N.shape[0]
    if num == 0:
        return
    more = (num - num_rows) // num_requests
    assert num == num_rows + more * num_requests and num >= num_requests, "as many rows more of each request"
    _draft_one_pass_rows_kernel[(triton.cdiv(num, ROWS_PER_PROGRAM),)](
        rows.slot_B,
        rows.row_req_T,
        rows.q_len_B,
        rows.args,
        cu_q_B1,
        outcome.sample_row_B,
        slots.args,
        out.args,
        source_N,
        placeholder_id,
        num_rows,
        num_requests,
        MORE=more,
        PAGE=slots.page_size,
        BLOCK_N=ROWS_PER_PROGRAM,
        num_warps=4,
    )


draft_one_pass_rows = dispatch(draft_one_pass_rows_ref, draft_one_pass_rows_triton)


@triton.jit(do_not_specialize=["placeholder_id", "num_rows", "num_requests"])
def _draft_one_pass_rows_kernel(
    slot_ptr,
    row_req_ptr,
    q_len_ptr,
    rows,
    cu_q_ptr,
    sample_row_ptr,
    slots,
    out,
    source_ptr,
    placeholder_id,
    num_rows,
    num_requests,
    MORE: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The target's rows first, then those behind them, request by request; each finds its own place."""
    row = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    inside = row < num_rows + num_requests * MORE
    is_own = row < num_rows
    extra = tl.maximum(row - num_rows, 0)
    own_request = tl.load(row_req_ptr + row, mask=is_own, other=0).to(tl.int64)
    request = tl.where(is_own, own_request, extra // max(MORE, 1))
    behind = extra % max(MORE, 1)
    end = tl.load(cu_q_ptr + request + 1, mask=inside, other=1).to(tl.int64)
    target_row = tl.where(is_own, row, end + behind)
    known_row = tl.where(is_own, row, tl.maximum(end - 1, 0))
    known_position = tl.load(rows.position + known_row, mask=inside, other=0).to(tl.int64)
    position = tl.where(is_own, known_position, known_position + 1 + behind)
    slot = tl.load(slot_ptr + request, mask=inside, other=0).to(tl.int64)
    last_real = tl.minimum(tl.load(sample_row_ptr + request, mask=inside, other=0).to(tl.int64), end - 1)
    is_real = target_row <= last_real
    token_at = slots.tokens + slot * slots.tokens_width + tl.minimum(position + 1, slots.tokens_width - 1)
    token = tl.maximum(tl.load(token_at, mask=inside & is_real, other=0), 0)
    place = target_row + MORE * request
    kv_slot = key_slot(slots, slot, position, PAGE, inside)
    store_row(out, place, tl.where(is_real, token, placeholder_id), position, kv_slot, inside)
    tl.store(source_ptr + place, tl.where(is_real, target_row, num_rows), mask=inside)
    is_request = row < num_requests
    kv_len = tl.load(rows.kv_len + row, mask=is_request, other=0) + MORE
    has_keys = tl.load(q_len_ptr + row, mask=is_request, other=0) > 0
    tl.store(out.kv_len + row, tl.where(has_keys, kv_len, 0).to(out.kv_len.dtype.element_ty), mask=is_request)
