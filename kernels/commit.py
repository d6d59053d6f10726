"""The commit of accepted tokens and the status block of a round, shared by acceptance of chains and of trees.

Legend: B requests, S slots, L width of the token buffer, Q token columns of a request, E stop ids of a slot (padded
with -1), X = 6 + Q status columns.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.kernels.buffers import Slots
from specbench.kernels.triton_support import tl, triton

RUNNING, STOPPED, LENGTH = 0, 1, 2  # values of done_S
ACCEPTED, COMMITTED, DONE, NEW_N, OFFERED, DEPTH = range(6)  # columns of status_BX before the tokens
NUM_STATUS_COLUMNS = 6


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of acceptance for each request, before stop ids and limits."""

    emitted_BQ: Tensor
    accepted_B: Tensor
    offered_B: Tensor
    depth_B: Tensor  # how deep the offered drafts reach
    active_B: Tensor  # bool: neither done nor a prompt's earlier chunk


def commit_ref(accepted: Accepted, slot_B: Tensor, slots: Slots, status_BX: Tensor) -> None:
    """Commits up to a + 1 of each active request's emitted tokens behind its pending token and reports.

    c = min(a + 1, limit - (n + 1)) tokens, cut after the first stop id (done 1); reaching the limit is done 2. Status
    (int32): a, c, done, the new n, drafts offered, depth offered, then the tokens with -1 from column c on.
    """
    emitted_BQ, accepted_B, active_B = accepted.emitted_BQ, accepted.accepted_B, accepted.active_B
    num_columns = emitted_BQ.shape[1]
    column_Q = torch.arange(num_columns, device=emitted_BQ.device)
    n_B = slots.n_S.index_select(0, slot_B)
    limit_B = slots.limit_S.index_select(0, slot_B)
    was_done_B = slots.done_S.index_select(0, slot_B)

    room_B = limit_B - n_B
    room_B -= 1
    room_B.clamp_(min=0)
    count_B = torch.minimum(accepted_B + 1, room_B)
    count_B.masked_fill_(~active_B, 0)
    stop_B1E = slots.stop_SE.index_select(0, slot_B).unsqueeze(1)
    is_stop_BQ = (emitted_BQ.unsqueeze(2) == stop_B1E).any(dim=2)
    is_stop_BQ &= column_Q < count_B.unsqueeze(1)
    first_stop_B = torch.where(is_stop_BQ, column_Q, num_columns).amin(dim=1)
    stopped_B = first_stop_B < num_columns
    count_B = torch.minimum(count_B, first_stop_B + 1)
    committed_BQ = column_Q < count_B.unsqueeze(1)

    new_n_B = n_B + count_B
    done_B = torch.full_like(was_done_B, RUNNING)
    done_B.masked_fill_(new_n_B + 1 >= limit_B, LENGTH)
    done_B.masked_fill_(stopped_B, STOPPED)
    done_B = torch.where(active_B, done_B, was_done_B)

    _store_committed(emitted_BQ, committed_BQ, slot_B, n_B.long(), slots.tokens_SL)
    slots.n_S.index_copy_(0, slot_B, new_n_B.to(slots.n_S.dtype))
    slots.done_S.index_copy_(0, slot_B, done_B)
    for index, value_B in enumerate((accepted_B, count_B, done_B, new_n_B, accepted.offered_B, accepted.depth_B)):
        status_BX[:, index].copy_(value_B)
    status_BX[:, NUM_STATUS_COLUMNS:].copy_(emitted_BQ.masked_fill(~committed_BQ, -1))


def _store_committed(emitted_BQ: Tensor, committed_BQ: Tensor, slot_B: Tensor, n_B: Tensor, tokens_SL: Tensor) -> None:
    """Writes behind the pending token; columns that commit nothing write the pending token over itself.

    So every written place gets a single value, even if a done slot occurs several times in `slot_B`.
    """
    n_B1, slot_B1 = n_B.unsqueeze(1), slot_B.unsqueeze(1)
    column_Q = torch.arange(1, emitted_BQ.shape[1] + 1, device=emitted_BQ.device)
    at_BQ = n_B1 + column_Q * committed_BQ
    value_BQ = torch.where(committed_BQ, emitted_BQ, tokens_SL[slot_B1, n_B1])
    tokens_SL[slot_B1, at_BQ] = value_BQ


@triton.jit
def commit_row(
    emitted,
    accepted,
    offered,
    depth,
    active,
    request,
    slot,
    slots,
    status_ptr,
    Q: tl.constexpr,
    E: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """`commit_ref` for one request, inside a kernel: `emitted` int64 [BLOCK_Q], `slots` SlotArgs, the rest scalars."""
    BLOCK_Q: tl.constexpr = emitted.shape[0]
    column = tl.arange(0, BLOCK_Q)
    n = tl.load(slots.n + slot).to(tl.int32)
    limit = tl.load(slots.limit + slot).to(tl.int32)
    was_done = tl.load(slots.done + slot).to(tl.int32)
    count = tl.where(active, tl.minimum(accepted + 1, tl.maximum(limit - (n + 1), 0)), 0)
    stop_column = tl.arange(0, BLOCK_E)
    stop = tl.load(slots.stop + slot * E + stop_column, mask=stop_column < E, other=-1)
    same = (emitted[:, None] == stop[None, :]).to(tl.int32)
    is_stop = (tl.max(same, axis=1) > 0) & (column < count)
    first_stop = tl.min(tl.where(is_stop, column, BLOCK_Q), axis=0)
    count = tl.minimum(count, first_stop + 1)
    new_n = n + count
    done = tl.where(first_stop < BLOCK_Q, 1, tl.where(new_n + 1 >= limit, 2, 0))
    done = tl.where(active, done, was_done)

    committed = column < count
    tl.store(slots.tokens + slot * slots.tokens_width + n + 1 + column, emitted, mask=committed)
    if active:
        tl.store(slots.n + slot, new_n.to(slots.n.dtype.element_ty))
        tl.store(slots.done + slot, done.to(slots.done.dtype.element_ty))
    status_at = status_ptr + request * (6 + Q)
    tl.store(status_at, accepted)
    tl.store(status_at + 1, count)
    tl.store(status_at + 2, done)
    tl.store(status_at + 3, new_n)
    tl.store(status_at + 4, offered)
    tl.store(status_at + 5, depth)
    tl.store(status_at + 6 + column, tl.where(committed, emitted, -1).to(tl.int32), mask=column < Q)
