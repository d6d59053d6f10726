"""Fills in the ids, positions and cache slots of the next launch, from the state of each slot.

Legend: B requests of the step, T their rows, S slots, L width of the token buffer, P pages of a slot, K draft depth.
The key slot of position p is block_table[s, p // page_size] * page_size + p % page_size. P * page_size must exceed
every position that is used, including those drafted ahead; positions beyond it map to the dummy page 0.
"""

import torch

from specbench.kernels.buffers import Rows, Slots
from specbench.kernels.triton_support import dispatch, early_launch, tl, triton, wait_for_inputs

ROWS_PER_PROGRAM = 128  # one per thread; the same for every batch size, so that a new size needs no compilation


def prepare_rows_ref(rows: Rows, slots: Slots) -> None:
    """Fills in the inputs of the target's pass (`ids_T` to `kv_len_B`, `block_table_BP`) for one step, for decodes and
    prompt chunks alike.

    Row t is row j = row_off_T[t] of request b = row_req_T[t] in slot s = slot_B[b], at position n_S[s] + j. Its id is
    the draft drafts_SK[s, j-1] where num_drafts_B[b] > 0 and j > 0, else tokens_SL[s, position]; no draft (-1) becomes
    id 0. `kv_len_B` = n_S[s] + q_len_B[b].
    """
    tokens_SL, drafts_SK, row_off_T = slots.tokens_SL, slots.drafts_SK, rows.row_off_T
    n_B = slots.n_S.index_select(0, rows.slot_B)
    torch.add(n_B, rows.q_len_B, out=rows.kv_len_B)
    rows.block_table_BP.copy_(slots.block_table_SP.index_select(0, rows.slot_B))
    slot_T = rows.slot_B.index_select(0, rows.row_req_T)
    at_T = n_B.index_select(0, rows.row_req_T).long()
    at_T += row_off_T
    rows.position_T.copy_(at_T)
    slots.write_key_slots(slot_T, at_T, rows.kv_slot_T)
    # A draft may lie beyond the token buffer: its token is then unused, but the gather still needs a valid index.
    token_T = tokens_SL[slot_T, at_T.clamp_(max=tokens_SL.shape[1] - 1)]
    if drafts_SK.shape[1] > 0:
        column_T = (row_off_T - 1).clamp_(0, drafts_SK.shape[1] - 1)
        is_draft_T = rows.num_drafts_B.index_select(0, rows.row_req_T) > 0
        is_draft_T &= row_off_T > 0
        token_T = torch.where(is_draft_T, drafts_SK[slot_T, column_T], token_T)
    rows.ids_T.copy_(token_T.clamp_(min=0))


def prepare_rows_triton(rows: Rows, slots: Slots) -> None:
    num_rows, num_requests = rows.row_req_T.shape[0], rows.slot_B.shape[0]
    if num_requests == 0:
        return
    num_pages = slots.block_table_SP.shape[1]
    assert rows.block_table_BP.is_contiguous(), "tables must be dense"
    assert rows.block_table_BP.shape[1] == num_pages, "tables must be as wide as the slots'"
    row_programs = triton.cdiv(num_rows, ROWS_PER_PROGRAM)
    _prepare_rows_kernel[(row_programs + num_requests,)](
        rows.slot_B,
        rows.row_req_T,
        rows.row_off_T,
        rows.num_drafts_B,
        rows.q_len_B,
        slots.args,
        rows.args,
        rows.block_table_BP,
        num_rows,
        row_programs,
        P=num_pages,
        PAGE=slots.page_size,
        BLOCK_T=ROWS_PER_PROGRAM,
        BLOCK_P=min(triton.next_power_of_2(num_pages), 1024),
        num_warps=4,
        **early_launch(rows.ids_T),
    )


prepare_rows = dispatch(prepare_rows_ref, prepare_rows_triton)


@triton.jit
def key_slot(slots, slot, position, PAGE: tl.constexpr, mask):
    """The int64 offset of `position`'s key in the cache. A position outside the table maps to the dummy page 0."""
    page = position // PAGE
    table_at = slots.table + slot * slots.table_width + page
    return tl.load(table_at, mask=mask & (page < slots.table_width), other=0).to(tl.int64) * PAGE + position % PAGE


@triton.jit
def store_row(out, row, ids, position, kv_slot, mask):
    """Writes rows of a pass into its `PassArgs`."""
    tl.store(out.ids + row, ids.to(out.ids.dtype.element_ty), mask=mask)
    tl.store(out.position + row, position.to(out.position.dtype.element_ty), mask=mask)
    tl.store(out.kv_slot + row, kv_slot, mask=mask)


@triton.jit(do_not_specialize=["num_rows", "row_programs"])
def _prepare_rows_kernel(
    slot_ptr,
    row_req_ptr,
    row_off_ptr,
    num_drafts_ptr,
    q_len_ptr,
    slots,
    out,
    request_table_ptr,
    num_rows,
    row_programs,
    P: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_P: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_inputs(EARLY)
    program = tl.program_id(0)
    if program < row_programs:
        row = program * BLOCK_T + tl.arange(0, BLOCK_T)
        inside = row < num_rows
        row_request = tl.load(row_req_ptr + row, mask=inside, other=0).to(tl.int64)
        offset = tl.load(row_off_ptr + row, mask=inside, other=0).to(tl.int64)
        row_slot = tl.load(slot_ptr + row_request, mask=inside, other=0).to(tl.int64)
        position = tl.load(slots.n + row_slot, mask=inside, other=0).to(tl.int64) + offset
        is_draft = (tl.load(num_drafts_ptr + row_request, mask=inside, other=0) > 0) & (offset > 0)
        known_inside = inside & (position < slots.tokens_width) & (is_draft == 0)
        known = tl.load(slots.tokens + row_slot * slots.tokens_width + position, mask=known_inside, other=0)
        draft_inside = inside & is_draft & (offset <= slots.drafts_width)
        draft = tl.load(slots.drafts + row_slot * slots.drafts_width + offset - 1, mask=draft_inside, other=0)
        ids = tl.maximum(tl.where(is_draft, draft, known), 0)
        kv_slot = key_slot(slots, row_slot, position, PAGE, inside)
        store_row(out, row, ids, position, kv_slot, inside)
    else:
        request = (program - row_programs).to(tl.int64)
        slot = tl.load(slot_ptr + request).to(tl.int64)
        kv_len = tl.load(slots.n + slot) + tl.load(q_len_ptr + request)
        tl.store(out.kv_len + request, kv_len.to(out.kv_len.dtype.element_ty))
        for start in range(0, P, BLOCK_P):
            page = start + tl.arange(0, BLOCK_P)
            entry = tl.load(slots.table + slot * P + page, mask=page < P, other=0)
            request_table_at = request_table_ptr + request * P + page
            tl.store(request_table_at, entry, mask=page < P)
