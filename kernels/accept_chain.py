"""Acceptance of a chain of drafts and the commit of the accepted tokens, one program a request.

The target's token y_j is drawn for every verified row; drafts are accepted while they equal it, and y is what is
emitted. With deterministic drafts that is exact for greedy and random rows alike.
Legend: B requests, S slots, L width of the token buffer, K draft depth, Q = K + 1 rows of a request, E stop ids of a
slot (padded with -1), X = 5 + Q status columns.
"""

import torch
from torch import Tensor

from specbench.kernels.triton_support import tl, triton, use_triton

RUNNING, STOPPED, LENGTH = 0, 1, 2  # values of done_S
NUM_STATUS_COLUMNS = 5  # columns of status_BX before the tokens


def accept_chain(
    sampled_BQ: Tensor,
    slot_B: Tensor,
    num_drafts_B: Tensor,
    base_row_B: Tensor,
    forced_B: Tensor | None,
    n_S: Tensor,
    tokens_SL: Tensor,
    limit_S: Tensor,
    stop_SE: Tensor,
    done_S: Tensor,
    drafts_SK: Tensor,
    status_BX: Tensor,
    sample_row_B: Tensor,
) -> None:
    """Accepts, commits and reports one round; updates `n_S`, `tokens_SL`, `done_S`, fills `status_BX`, `sample_row_B`.

    With n = n_S[s], y = sampled_BQ[b] and d = drafts_SK[s]: a = how many leading d_j equal y_j, at most
    num_drafts_B[b]. `forced_B` (synthetic acceptance) sets a = min(forced, leading drafts that exist, num_drafts) and
    emits the drafts themselves before y_a. c = min(a + 1, limit_S[s] - (n + 1)) tokens are committed behind
    tokens_SL[s, n], cut after the first stop id (done 1); reaching the limit is done 2.
    Slots that are done, and requests with num_drafts -1 (a prompt's earlier chunk), commit nothing: a = c = 0.

    `status_BX` (int32): a, c, done, the new n, how many drafts there were (leading ones >= 0), then y_0..y_K with -1
    from y_c on.
    `sample_row_B` (int64) = base_row_B + (a where num_drafts > 0, else 0): the row the drafter continues from.
    A done slot may stand several times in `slot_B`, a running one only once.
    """
    op = accept_chain_triton if use_triton(tokens_SL) else accept_chain_ref
    op(
        sampled_BQ,
        slot_B,
        num_drafts_B,
        base_row_B,
        forced_B,
        n_S,
        tokens_SL,
        limit_S,
        stop_SE,
        done_S,
        drafts_SK,
        status_BX,
        sample_row_B,
    )


def accept_chain_ref(
    sampled_BQ: Tensor,
    slot_B: Tensor,
    num_drafts_B: Tensor,
    base_row_B: Tensor,
    forced_B: Tensor | None,
    n_S: Tensor,
    tokens_SL: Tensor,
    limit_S: Tensor,
    stop_SE: Tensor,
    done_S: Tensor,
    drafts_SK: Tensor,
    status_BX: Tensor,
    sample_row_B: Tensor,
) -> None:
    num_rows = sampled_BQ.shape[1]
    depth = num_rows - 1
    n_B, was_done_B, limit_B = n_S[slot_B], done_S[slot_B], limit_S[slot_B]
    active_B = (num_drafts_B >= 0) & (was_done_B == RUNNING)
    column_Q = torch.arange(num_rows, device=sampled_BQ.device)

    emitted_BQ = sampled_BQ
    accepted_B = offered_B = torch.zeros_like(n_B)
    if depth > 0:
        drafts_BK = drafts_SK[slot_B, :depth]
        exists_BK = (drafts_BK >= 0) & (column_Q[:depth] < num_drafts_B.unsqueeze(1))
        offered_B = exists_BK.cumprod(dim=1).sum(dim=1) * active_B
        if forced_B is None:
            accepted_B = (exists_BK & (drafts_BK == sampled_BQ[:, :depth])).cumprod(dim=1).sum(dim=1)
        else:
            accepted_B = torch.minimum(offered_B, forced_B)
            takes_draft_BK = column_Q[:depth] < accepted_B.unsqueeze(1)
            emitted_BQ = sampled_BQ.clone()
            emitted_BQ[:, :depth] = torch.where(takes_draft_BK, drafts_BK, sampled_BQ[:, :depth])
        accepted_B = accepted_B * active_B

    room_B = (limit_B - (n_B + 1)).clamp_(min=0)
    count_B = torch.minimum(accepted_B + 1, room_B) * active_B
    is_stop_BQ = (emitted_BQ.unsqueeze(2) == stop_SE[slot_B].unsqueeze(1)).any(dim=2)
    is_stop_BQ &= column_Q < count_B.unsqueeze(1)
    first_stop_B = torch.where(is_stop_BQ, column_Q, num_rows).amin(dim=1)
    count_B = torch.minimum(count_B, first_stop_B + 1)
    new_n_B = n_B + count_B
    done_B = torch.where(new_n_B + 1 >= limit_B, LENGTH, RUNNING)
    done_B = torch.where(first_stop_B < num_rows, STOPPED, done_B)
    done_B = torch.where(active_B, done_B, was_done_B).to(done_S.dtype)

    committed_BQ = column_Q < count_B.unsqueeze(1)
    request, row = committed_BQ.nonzero(as_tuple=True)
    tokens_SL[slot_B[request], n_B[request] + 1 + row] = emitted_BQ[request, row]
    n_S[slot_B] = new_n_B.to(n_S.dtype)
    done_S[slot_B] = done_B

    for column, value_B in enumerate((accepted_B, count_B, done_B, new_n_B, offered_B)):
        status_BX[:, column] = value_B
    status_BX[:, NUM_STATUS_COLUMNS:] = torch.where(committed_BQ, emitted_BQ, -1)
    sample_row_B.copy_(base_row_B + accepted_B)


def accept_chain_triton(
    sampled_BQ: Tensor,
    slot_B: Tensor,
    num_drafts_B: Tensor,
    base_row_B: Tensor,
    forced_B: Tensor | None,
    n_S: Tensor,
    tokens_SL: Tensor,
    limit_S: Tensor,
    stop_SE: Tensor,
    done_S: Tensor,
    drafts_SK: Tensor,
    status_BX: Tensor,
    sample_row_B: Tensor,
) -> None:
    num_requests, num_rows = sampled_BQ.shape
    assert status_BX.shape[1] == NUM_STATUS_COLUMNS + num_rows and status_BX.stride(1) == 1, "status is [B, 5 + Q]"
    assert sampled_BQ.stride(1) == 1 and drafts_SK.shape[1] >= num_rows - 1, "Q is at most K + 1"
    if num_requests == 0:
        return
    _accept_chain_kernel[(num_requests,)](
        sampled_BQ,
        slot_B,
        num_drafts_B,
        base_row_B,
        num_drafts_B if forced_B is None else forced_B,
        n_S,
        tokens_SL,
        limit_S,
        stop_SE,
        done_S,
        drafts_SK,
        status_BX,
        sample_row_B,
        sampled_BQ.stride(0),
        tokens_SL.stride(0),
        stop_SE.stride(0),
        drafts_SK.stride(0),
        status_BX.stride(0),
        FORCED=forced_B is not None,
        Q=num_rows,
        E=stop_SE.shape[1],
        BLOCK_Q=triton.next_power_of_2(num_rows),
        BLOCK_E=triton.next_power_of_2(max(stop_SE.shape[1], 1)),
        num_warps=1,
    )


@triton.jit
def _accept_chain_kernel(
    sampled_ptr,
    slot_ptr,
    num_drafts_ptr,
    base_row_ptr,
    forced_ptr,
    n_ptr,
    tokens_ptr,
    limit_ptr,
    stop_ptr,
    done_ptr,
    drafts_ptr,
    status_ptr,
    sample_row_ptr,
    stride_sampled,
    stride_tokens,
    stride_stop,
    stride_drafts,
    stride_status,
    FORCED: tl.constexpr,
    Q: tl.constexpr,
    E: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + request).to(tl.int64)
    num_drafts = tl.load(num_drafts_ptr + request).to(tl.int32)
    n = tl.load(n_ptr + slot).to(tl.int32)
    limit = tl.load(limit_ptr + slot).to(tl.int32)
    was_done = tl.load(done_ptr + slot).to(tl.int32)
    active = (num_drafts >= 0) & (was_done == 0)

    column = tl.arange(0, BLOCK_Q)
    emitted = tl.load(sampled_ptr + request * stride_sampled + column, mask=column < Q, other=-1).to(tl.int64)
    # Column num_drafts <= Q - 1 never counts as a match, so the minimum below is always one of the columns.
    is_draft = (column < num_drafts) & (column < Q - 1)
    draft = tl.load(drafts_ptr + slot * stride_drafts + column, mask=is_draft, other=-1)
    offered = tl.min(tl.where(is_draft & (draft >= 0), BLOCK_Q, column), axis=0)
    offered = tl.where(active, offered, 0)
    if FORCED:
        accepted = tl.minimum(offered, tl.load(forced_ptr + request).to(tl.int32))
        emitted = tl.where(column < accepted, draft, emitted)
    else:
        same_token = is_draft & (draft >= 0) & (draft == emitted)
        accepted = tl.min(tl.where(same_token, BLOCK_Q, column), axis=0)
    accepted = tl.where(active, accepted, 0)

    count = tl.where(active, tl.minimum(accepted + 1, tl.maximum(limit - (n + 1), 0)), 0)
    stop_column = tl.arange(0, BLOCK_E)
    stop = tl.load(stop_ptr + slot * stride_stop + stop_column, mask=stop_column < E, other=-1)
    same = (emitted[:, None] == stop[None, :]).to(tl.int32)
    is_stop = (tl.max(same, axis=1) > 0) & (column < count)
    first_stop = tl.min(tl.where(is_stop, column, BLOCK_Q), axis=0)
    count = tl.minimum(count, first_stop + 1)
    new_n = n + count
    done = tl.where(first_stop < BLOCK_Q, 1, tl.where(new_n + 1 >= limit, 2, 0))
    done = tl.where(active, done, was_done)

    committed = column < count
    tl.store(tokens_ptr + slot * stride_tokens + n + 1 + column, emitted, mask=committed)
    if active:
        tl.store(n_ptr + slot, new_n.to(n_ptr.dtype.element_ty))
        tl.store(done_ptr + slot, done.to(done_ptr.dtype.element_ty))
    status_at = status_ptr + request * stride_status
    tl.store(status_at, accepted)
    tl.store(status_at + 1, count)
    tl.store(status_at + 2, done)
    tl.store(status_at + 3, new_n)
    tl.store(status_at + 4, offered)
    tl.store(status_at + 5 + column, tl.where(committed, emitted, -1).to(tl.int32), mask=column < Q)
    base_row = tl.load(base_row_ptr + request).to(tl.int64)
    tl.store(sample_row_ptr + request, base_row + accepted)
