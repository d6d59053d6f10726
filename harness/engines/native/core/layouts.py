"""Makes the layouts of steps.

A decode round is uniform and its layout is fixed, so its tensors persist and can be captured; a mixed step is ragged
and gets its own layout. Legend: batch.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.scheduler import ScheduledRows
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.upload import send_together
from specbench.kernels.buffers import Outcome, PassRows, Rows
from specbench.kernels.commit import NUM_STATUS_COLUMNS


def decode_batch(state: RoundState, num_requests: int, num_drafts: int | None = None) -> StepBatch:
    """The persistent layout of a decode round of `num_requests` requests; initially every row is the dummy slot.

    `num_drafts`: how many of a chain's drafts are verified and made; all of them by default.
    """
    num_drafts = state.drafts_SK.shape[1] if num_drafts is None else num_drafts
    q, num_draft_rows = num_drafts + 1, state.path_drafts(num_drafts) + 1
    index_T = torch.arange(num_requests * q, dtype=torch.int64)
    device = state.device
    rows = _rows(
        state,
        num_requests,
        slot_B=torch.full((num_requests,), state.dummy_slot, dtype=torch.int64, device=device),
        row_req_T=(index_T // q).to(device),
        row_off_T=(index_T % q).to(torch.int32).to(device),
        num_drafts_B=torch.full((num_requests,), num_drafts, dtype=torch.int32, device=device),
        q_len_B=torch.full((num_requests,), q, dtype=torch.int32, device=device),
        base_row_B=(torch.arange(num_requests, dtype=torch.int64) * num_draft_rows).to(device),
    )
    return StepBatch(
        num_requests=num_requests,
        num_rows=num_requests * q,
        rows=rows,
        outcome=_outcome(state, num_requests, num_drafts),
        next_rows=PassRows.new(num_requests, num_requests, device),
        next_cu_q_B1=torch.arange(num_requests + 1, dtype=torch.int32, device=device),
        cu_q_B1=(torch.arange(num_requests + 1, dtype=torch.int32) * q).to(device),
        logit_row_R=None,
        advance_B=None,
        num_decodes=num_requests,
        decode_q=q,
        max_chunk=0,
        max_kv=state.max_kv,
        q_lens=(q,) * num_requests,
    )


@dataclass(frozen=True, slots=True)
class MixedEntry:
    """One request's part of a mixed step: `num_rows` prompt tokens, or the K+1 rows of a decode."""

    slot: int
    num_rows: int
    is_prefill: bool
    is_last_chunk: bool
    kv_len: int  # upper bound after this step
    is_padding: bool = False  # rows of the dummy slot, which fill a captured layout

    @staticmethod
    def of(row: ScheduledRows, most_emitted: int) -> MixedEntry:
        """`most_emitted`: tokens that a step in flight may add to a decode, before the host has read it."""
        request = row.request
        assert request.slot is not None
        after = request.num_computed + row.num_rows
        kv_len = after if row.is_prefill else after + most_emitted * request.num_inflight
        return MixedEntry(request.slot, row.num_rows, row.is_prefill, after >= request.num_prefill, kv_len)

    @property
    def num_advanced(self) -> int:
        """Prompt tokens that become computed before acceptance; the last one counts with the token sampled after it."""
        return 0 if self.is_padding else self.num_rows - self.is_last_chunk


def mixed_batch(state: RoundState, entries: list[MixedEntry], num_drafts: int | None = None) -> StepBatch:
    """The ragged layout of one mixed step, with decodes before prompt chunks. `num_drafts`: as in a decode round."""
    num_decodes = sum(not e.is_prefill for e in entries)
    assert not any(e.is_prefill for e in entries[:num_decodes]), "decodes come first"
    num_drafts = state.drafts_SK.shape[1] if num_drafts is None else num_drafts
    # Verification brings K+1 rows a decode; the drafter goes on over the accepted path, which a tree makes shorter.
    num_path_rows = state.path_drafts(num_drafts) + 1
    num_saved = num_decodes * (num_drafts + 1 - num_path_rows)
    drafts, base_row, logit_rows, advance, cu_q = [], [], [], [], [0]
    for index, entry in enumerate(entries):
        first, last = cu_q[-1], cu_q[-1] + entry.num_rows - 1
        cu_q.append(last + 1)
        if entry.is_prefill:
            drafts.append(0 if entry.is_last_chunk else -1)
            base_row.append(last - num_saved)
            logit_rows += [last] * (num_drafts + 1)
            advance.append(entry.num_advanced)
        else:
            drafts.append(num_drafts)
            base_row.append(index * num_path_rows)
            logit_rows += range(first, last + 1)
            advance.append(0)
    i32, i64, num_requests, num_rows = torch.int32, torch.int64, len(entries), cu_q[-1]
    # As arrays: lists of thousands of rows would take the host as long as the device takes for a small model's step.
    row_req = np.repeat(np.arange(num_requests), np.diff(cu_q))
    row_off = np.arange(num_rows) - np.array(cu_q)[row_req]
    row_off[np.array([e.is_padding for e in entries])[row_req]] = 0
    slot_B, row_req_T, base_row_B, logit_row_R = send_together(
        [[e.slot for e in entries], row_req, base_row, logit_rows], i64, state.device
    )
    # Padding rows have no keys: a layout may hold more of them than a slot has positions.
    q_lens = [0 if e.is_padding else e.num_rows for e in entries]
    chunk_cu_q = [row - cu_q[num_decodes] for row in cu_q[num_decodes:]]
    row_off_T, num_drafts_B, q_len_B, cu_q_B1, advance_B, chunk_cu_q_B1 = send_together(
        [row_off, drafts, q_lens, cu_q, advance, chunk_cu_q], i32, state.device
    )
    rows = _rows(
        state,
        num_decodes,
        slot_B=slot_B,
        row_req_T=row_req_T,
        row_off_T=row_off_T,
        num_drafts_B=num_drafts_B,
        q_len_B=q_len_B,
        base_row_B=base_row_B,
    )
    return StepBatch(
        num_requests=num_requests,
        num_rows=num_rows,
        rows=rows,
        outcome=_outcome(state, num_requests, num_drafts),
        next_rows=PassRows.new(num_requests, num_requests, state.device),
        next_cu_q_B1=torch.arange(num_requests + 1, dtype=i32, device=state.device),
        cu_q_B1=cu_q_B1,
        logit_row_R=logit_row_R,
        advance_B=advance_B,
        num_decodes=num_decodes,
        decode_q=num_drafts + 1,
        max_chunk=max((e.num_rows for e in entries[num_decodes:]), default=0),
        chunk_cu_q_B1=chunk_cu_q_B1,
        max_kv=min(max(e.kv_len for e in entries) + state.lookahead.reach, state.max_kv),  # drafting goes beyond
        q_lens=tuple(e.num_rows for e in entries),
        slots=tuple(e.slot for e in entries),
    )


def _rows(state: RoundState, num_decodes: int, **layout: Tensor) -> Rows:
    """A layout (the fields of `Rows` by name) with space for what kernels fill in."""
    num_requests, num_pages = layout["slot_B"].shape[0], state.block_table_SP.shape[1]
    filled = PassRows.new(layout["row_req_T"].shape[0], num_requests, state.device)
    q = state.drafts_SK.shape[1] + 1
    mask_shape = (num_decodes, q, q)
    return Rows(
        ids_T=filled.ids_T,
        position_T=filled.position_T,
        kv_slot_T=filled.kv_slot_T,
        kv_len_B=filled.kv_len_B,
        block_table_BP=torch.zeros(num_requests, num_pages, dtype=torch.int32, device=state.device),
        tree_mask_BDD=torch.zeros(mask_shape, dtype=torch.bool, device=state.device)
        if state.tree is not None
        else None,
        **layout,
    )


def _outcome(state: RoundState, num_requests: int, num_drafts: int) -> Outcome:
    width, device = state.path_drafts(num_drafts) + 1, state.device
    return Outcome(
        status_BX=torch.zeros(num_requests, NUM_STATUS_COLUMNS + width, dtype=torch.int32, device=device),
        sample_row_B=torch.zeros(num_requests, dtype=torch.int64, device=device),
        path_BW=None if state.tree is None else torch.zeros(num_requests, width, dtype=torch.int64, device=device),
    )
