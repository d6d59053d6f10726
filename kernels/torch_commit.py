"""`commit_ref` (commit.py) as small torch operations that a CUDA graph can capture; see torch_update.py.

Legend: B requests, S slots, L width of the token buffer, Q token columns of a request, E stop ids of a slot, X = 6 + Q
status columns.
"""

import torch
from torch import Tensor

from specbench.kernels.buffers import Slots
from specbench.kernels.commit import LENGTH, NUM_STATUS_COLUMNS, RUNNING, STOPPED, Accepted


def commit_in_small_operations(found: Accepted, slot_B: Tensor, slots: Slots, status_BX: Tensor) -> None:
    """Tokens, counters, flags and the status block."""
    emitted_BQ, accepted_B, active_B = found.emitted_BQ, found.accepted_B, found.active_B
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
    for index, value_B in enumerate((accepted_B, count_B, done_B, new_n_B, found.offered_B, found.depth_B)):
        status_BX[:, index].copy_(value_B)
    status_BX[:, NUM_STATUS_COLUMNS:].copy_(emitted_BQ.masked_fill(~committed_BQ, -1))


def _store_committed(emitted_BQ: Tensor, committed_BQ: Tensor, slot_B: Tensor, n_B: Tensor, tokens_SL: Tensor) -> None:
    """Writes behind the pending token; columns that commit nothing write the pending token over itself.

    So every column has a place of its own value, also where a done slot stands several times in `slot_B`.
    """
    n_B1, slot_B1 = n_B.unsqueeze(1), slot_B.unsqueeze(1)
    column_Q = torch.arange(1, emitted_BQ.shape[1] + 1, device=emitted_BQ.device)
    at_BQ = n_B1 + column_Q * committed_BQ
    value_BQ = torch.where(committed_BQ, emitted_BQ, tokens_SL[slot_B1, n_B1])
    tokens_SL[slot_B1, at_BQ] = value_BQ
