"""The round's state update as many small torch operations: what fused kernels replace, kept for comparison.

The sequence is that of vLLM 0.9.2's proposer (v1/spec_decode/eagle.py, `propose`) and of its rejection bookkeeping:
casts, +=, compares, masked fills, gathers, divisions, copies, each its own launch, on persistent outputs. Nothing is
read back and no shape depends on a value, so a CUDA graph can capture it. The values are those of the fused kernels.
Legend: as in decode_rows.py, accept_chain.py and accept_tree.py.
"""

import math

import torch
from torch import Tensor

from specbench.kernels.buffers import Outcome, PassRows, Rows, Slots
from specbench.kernels.commit import LENGTH, NUM_STATUS_COLUMNS, RUNNING, STOPPED, Accepted


class TorchStateUpdate:
    """A `StateUpdate` (state_update.py); `FusedStateUpdate` writes the same values in one launch each."""

    name = "torch"

    def prepare_rows(self, rows: Rows, slots: Slots) -> None:
        tokens_SL, drafts_SK, row_off_T = slots.tokens_SL, slots.drafts_SK, rows.row_off_T
        n_B = slots.n_S.index_select(0, rows.slot_B)
        torch.add(n_B, rows.q_len_B, out=rows.kv_len_B)
        rows.block_table_BP.copy_(slots.block_table_SP.index_select(0, rows.slot_B))
        slot_T = rows.slot_B.index_select(0, rows.row_req_T)
        at_T = n_B.index_select(0, rows.row_req_T).long()
        at_T += row_off_T
        rows.position_T.copy_(at_T)
        _key_slots(slots, slot_T, at_T, rows.kv_slot_T)
        token_T = tokens_SL[slot_T, at_T.clamp_(max=tokens_SL.shape[1] - 1)]
        if drafts_SK.shape[1] > 0:
            column_T = (row_off_T - 1).clamp_(0, drafts_SK.shape[1] - 1)
            is_draft_T = rows.num_drafts_B.index_select(0, rows.row_req_T) > 0
            is_draft_T &= row_off_T > 0
            token_T = torch.where(is_draft_T, drafts_SK[slot_T, column_T], token_T)
        rows.ids_T.copy_(token_T.clamp_(min=0))

    def accept_chain(
        self, sampled_BQ: Tensor, rows: Rows, slots: Slots, outcome: Outcome, forced_B: Tensor | None = None
    ) -> None:
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
        found = Accepted(emitted_BQ, accepted_B, offered_B, offered_B, active_B)
        _commit(found, rows.slot_B, slots, outcome.status_BX)

    def prepare_tree_rows(self, rows: Rows, slots: Slots) -> None:
        assert slots.tree is not None and rows.tree_mask_BDD is not None
        self.prepare_rows(rows, slots)
        depth_SD, mask_BDD = slots.tree.depth_SD, rows.tree_mask_BDD
        slot_T = rows.slot_B.index_select(0, rows.row_req_T)
        is_node_T = rows.num_drafts_B.index_select(0, rows.row_req_T) > 0
        depth_T = depth_SD[slot_T, rows.row_off_T.clamp(max=depth_SD.shape[1] - 1)]
        at_T = slots.n_S.index_select(0, slot_T).long()
        at_T += torch.where(is_node_T, depth_T, rows.row_off_T)
        rows.position_T.copy_(at_T)
        mask_BDD.copy_(slots.tree.mask_SDD.index_select(0, rows.slot_B[: mask_BDD.shape[0]]))

    def accept_tree(
        self, sampled_BD: Tensor, rows: Rows, slots: Slots, outcome: Outcome, forced_B: Tensor | None = None
    ) -> None:
        assert slots.tree is not None and outcome.path_BW is not None
        slot_B, num_drafts_B, tree, path_BW = rows.slot_B, rows.num_drafts_B, slots.tree, outcome.path_BW
        size = sampled_BD.shape[1]
        active_B = num_drafts_B >= 0
        active_B &= slots.done_S.index_select(0, slot_B) == RUNNING
        draft_BK = slots.drafts_SK.index_select(0, slot_B)[:, : size - 1]
        parent_BK = tree.parent_SD.index_select(0, slot_B)[:, 1:size]
        exists_BK = draft_BK >= 0
        exists_BK &= (num_drafts_B > 0).unsqueeze(1)
        exists_BK &= active_B.unsqueeze(1)
        offered_B = exists_BK.sum(dim=1)
        depth_B = tree.depth_SD.index_select(0, slot_B)[:, 1:size].masked_fill(~exists_BK, 0).amax(dim=1)

        node_K = torch.arange(1, size, device=sampled_BD.device)
        node_B1 = torch.zeros_like(slot_B).unsqueeze(1)
        accepted_B1 = torch.zeros_like(node_B1)
        walking_B1 = torch.ones_like(node_B1, dtype=torch.bool)
        path_BW[:, 0].zero_()
        emitted_BW = torch.empty_like(path_BW)
        for step in range(1, path_BW.shape[1]):
            y_B1 = sampled_BD.gather(1, node_B1)
            is_child_BK = exists_BK & (parent_BK == node_B1)
            if forced_B is None:
                is_child_BK &= draft_BK == y_B1
            else:
                walking_B1 &= (forced_B >= step).unsqueeze(1)
            child_B1 = torch.where(is_child_BK, node_K, size).amin(dim=1, keepdim=True)
            walking_B1 &= child_B1 < size
            node_B1 = torch.where(walking_B1, child_B1, node_B1)
            accepted_B1 += walking_B1
            path_BW[:, step].copy_(node_B1.squeeze(1))
            draft_B1 = draft_BK.gather(1, (node_B1 - 1).clamp_(min=0))
            emitted_BW[:, step - 1].copy_(torch.where(walking_B1, draft_B1, y_B1).squeeze(1))
        emitted_BW[:, -1].copy_(sampled_BD.gather(1, node_B1).squeeze(1))
        accepted_B = accepted_B1.squeeze(1)
        torch.add(rows.base_row_B, accepted_B, out=outcome.sample_row_B)
        found = Accepted(emitted_BW, accepted_B, offered_B, depth_B, active_B)
        _commit(found, slot_B, slots, outcome.status_BX)

    def draft_first_ids(
        self, slot_B: Tensor, row_req_T: Tensor, position_T: Tensor, tokens_SL: Tensor, ids_T: Tensor
    ) -> None:
        after_T = (position_T + 1).clamp_(max=tokens_SL.shape[1] - 1)
        token_T = tokens_SL[slot_B.index_select(0, row_req_T), after_T]
        ids_T.copy_(token_T.clamp_(min=0))

    def draft_next_rows(self, out: PassRows, slot_B: Tensor, slots: Slots, step: int, shift: int = 0) -> None:
        drafts_SK = slots.drafts_SK
        assert 2 <= step <= drafts_SK.shape[1], f"step {step} is outside 2..{drafts_SK.shape[1]}"
        at_B = slots.n_S.index_select(0, slot_B).long()
        at_B += step - 2 + shift
        out.position_T.copy_(at_B)
        torch.add(at_B, 1, out=out.kv_len_B)
        _key_slots(slots, slot_B, at_B, out.kv_slot_T)
        draft_B = drafts_SK.select(1, step - 2).index_select(0, slot_B)
        out.ids_T.copy_(draft_B.clamp_(min=0))

    def draft_pair_rows(self, out: PassRows, slot_B: Tensor, slots: Slots) -> None:
        n_B = slots.n_S.index_select(0, slot_B).long().clamp_(min=1)
        torch.add(n_B, 1, out=out.kv_len_B)
        at_T = torch.stack([n_B - 1, n_B], dim=1).flatten()
        slot_T = slot_B.unsqueeze(1).expand(-1, 2).flatten()
        out.position_T.copy_(at_T)
        _key_slots(slots, slot_T, at_T, out.kv_slot_T)
        token_T = slots.tokens_SL[slot_T, at_T.clamp_(max=slots.tokens_SL.shape[1] - 1)]
        out.ids_T.copy_(token_T.clamp_(min=0))

    def store_draft(
        self, logits_BV: Tensor, d2t_V: Tensor | None, slot_B: Tensor, step: int, drafts_SK: Tensor
    ) -> None:
        assert 1 <= step <= drafts_SK.shape[1], f"step {step} is outside 1..{drafts_SK.shape[1]}"
        # NaN counts as -inf in every sampler of the engine; argmax alone would choose it.
        clean_BV = torch.nan_to_num(logits_BV, nan=-math.inf, posinf=math.inf, neginf=-math.inf)
        ids_B = clean_BV.argmax(dim=1)
        if d2t_V is not None:
            ids_B = ids_B + d2t_V.index_select(0, ids_B)
        drafts_SK.select(1, step - 1).index_copy_(0, slot_B, ids_B)


def _key_slots(slots: Slots, slot_T: Tensor, at_T: Tensor, kv_slot_T: Tensor) -> None:
    """Cache slots of positions `at_T`; beyond the table they lie in the dummy page 0, as in the kernels."""
    page_T = at_T // slots.page_size
    beyond_T = page_T >= slots.block_table_SP.shape[1]
    page_T.masked_fill_(beyond_T, 0)
    entry_T = slots.block_table_SP[slot_T, page_T].long()
    entry_T.masked_fill_(beyond_T, 0)
    torch.mul(entry_T, slots.page_size, out=kv_slot_T)
    kv_slot_T += at_T % slots.page_size


def _commit(found: Accepted, slot_B: Tensor, slots: Slots, status_BX: Tensor) -> None:
    """`commit_ref` (commit.py): tokens, counters, flags and the status block."""
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
