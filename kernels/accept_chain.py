"""Acceptance of a chain of drafts and the commit of the accepted tokens, one program a request.

The target's token y_j is drawn for every verified row; drafts are accepted while they equal it, and y is
emitted. With deterministic drafts that is exact for greedy and random rows alike.
Legend: B requests, S slots, L width of the token buffer, K draft depth, Q = K + 1 rows of a request, E stop ids of a
slot (padded with -1), X = 6 + Q status columns.
"""

import torch
from torch import Tensor

from specbench.kernels.buffers import Outcome, Rows, Slots
from specbench.kernels.commit import NUM_STATUS_COLUMNS, RUNNING, Accepted, commit_ref, commit_row
from specbench.kernels.triton_support import dispatch, early_launch, tl, triton, wait_for_inputs


def accept_chain_ref(
    sampled_BQ: Tensor, rows: Rows, slots: Slots, outcome: Outcome, forced_B: Tensor | None = None
) -> None:
    """Accepts, commits and reports one round; updates `n_S`, `tokens_SL`, `done_S`, fills `outcome`.

    With n = n_S[s], y = sampled_BQ[b] and d = drafts_SK[s]: a = how many leading d_j equal y_j, at most
    num_drafts_B[b]. `forced_B` (synthetic acceptance) sets a = min(forced, leading drafts that exist, num_drafts) and
    emits the drafts themselves before y_a. c = min(a + 1, limit_S[s] - (n + 1)) tokens are committed behind
    tokens_SL[s, n], cut after the first stop id (done 1); reaching the limit is done 2.
    Slots that are done, and requests with num_drafts -1 (a prompt's earlier chunk), commit nothing: a = c = 0.

    `status_BX` (int32): a, c, done, the new n, how many drafts there were (leading ones >= 0), how deep they reached
    (the same number: a chain is as deep as it is long), then y_0..y_K with -1 from y_c on.
    `sample_row_B` (int64) = base_row_B + (a where num_drafts > 0, else 0): the row the drafter continues from.
    A done slot may occur several times in `slot_B`, a running one only once.
    """
    depth = sampled_BQ.shape[1] - 1
    active_B = rows.num_drafts_B >= 0
    active_B &= slots.done_S.index_select(0, rows.slot_B) == RUNNING
    column_K = torch.arange(depth, device=sampled_BQ.device)
    drafts_BK = slots.drafts_SK.index_select(0, rows.slot_B)[:, :depth]

    exists_BK = drafts_BK >= 0
    exists_BK &= column_K < rows.num_drafts_B.unsqueeze(1)
    exists_BK &= active_B.unsqueeze(1)
    offered_B = exists_BK.cumprod(dim=1).sum(dim=1)
    emitted_BQ = sampled_BQ
    if forced_B is None:
        exists_BK &= drafts_BK == sampled_BQ[:, :depth]
        accepted_B = exists_BK.cumprod(dim=1).sum(dim=1)
    else:
        accepted_B = torch.minimum(offered_B, forced_B)
        emitted_BQ = sampled_BQ.clone()
        takes_draft_BK = column_K < accepted_B.unsqueeze(1)
        emitted_BQ[:, :depth] = torch.where(takes_draft_BK, drafts_BK, sampled_BQ[:, :depth])
    torch.add(rows.base_row_B, accepted_B, out=outcome.sample_row_B)
    accepted = Accepted(emitted_BQ, accepted_B, offered_B, offered_B, active_B)
    commit_ref(accepted, rows.slot_B, slots, outcome.status_BX)


def accept_chain_triton(
    sampled_BQ: Tensor, rows: Rows, slots: Slots, outcome: Outcome, forced_B: Tensor | None = None
) -> None:
    num_requests, num_rows = sampled_BQ.shape
    assert outcome.status_BX.shape[1] == NUM_STATUS_COLUMNS + num_rows, "status is [B, 6 + Q]"
    assert sampled_BQ.is_contiguous() and outcome.status_BX.is_contiguous(), "rows must be dense"
    assert slots.drafts_SK.shape[1] >= num_rows - 1, "Q is at most K + 1"
    if num_requests == 0:
        return
    num_stops = slots.stop_SE.shape[1]
    _accept_chain_kernel[(num_requests,)](
        sampled_BQ,
        rows.slot_B,
        rows.num_drafts_B,
        rows.base_row_B,
        forced_B,
        slots.args,
        outcome.status_BX,
        outcome.sample_row_B,
        Q=num_rows,
        E=num_stops,
        BLOCK_Q=triton.next_power_of_2(num_rows),
        BLOCK_E=triton.next_power_of_2(max(num_stops, 1)),
        num_warps=1,
        **early_launch(sampled_BQ),
    )


accept_chain = dispatch(accept_chain_ref, accept_chain_triton)


@triton.jit
def _accept_chain_kernel(
    sampled_ptr,
    slot_ptr,
    num_drafts_ptr,
    base_row_ptr,
    forced_ptr,
    slots,
    status_ptr,
    sample_row_ptr,
    Q: tl.constexpr,
    E: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_E: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_inputs(EARLY)
    request = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + request).to(tl.int64)
    num_drafts = tl.load(num_drafts_ptr + request).to(tl.int32)
    active = (num_drafts >= 0) & (tl.load(slots.done + slot) == 0)

    column = tl.arange(0, BLOCK_Q)
    emitted = tl.load(sampled_ptr + request * Q + column, mask=column < Q, other=-1).to(tl.int64)
    # Column num_drafts <= Q - 1 never counts as a match, so the minimum below is always one of the columns.
    is_draft = (column < num_drafts) & (column < Q - 1)
    draft = tl.load(slots.drafts + slot * slots.drafts_width + column, mask=is_draft, other=-1)
    offered = tl.min(tl.where(is_draft & (draft >= 0), BLOCK_Q, column), axis=0)
    offered = tl.where(active, offered, 0)
    if forced_ptr is not None:
        accepted = tl.minimum(offered, tl.load(forced_ptr + request).to(tl.int32))
        emitted = tl.where(column < accepted, draft, emitted)
    else:
        same_token = is_draft & (draft >= 0) & (draft == emitted)
        accepted = tl.min(tl.where(same_token, BLOCK_Q, column), axis=0)
    accepted = tl.where(active, accepted, 0)

    commit_row(emitted, accepted, offered, offered, active, request, slot, slots, status_ptr, Q, E, BLOCK_E)
    base_row = tl.load(base_row_ptr + request).to(tl.int64)
    tl.store(sample_row_ptr + request, base_row + accepted)
