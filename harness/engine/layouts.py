"""How the layouts of steps are made.

A decode round is uniform and its layout is fixed, so its tensors persist and can be captured; a mixed step is ragged
and its layout is made for that step. Legend: batch.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specbench.kernels.accept_chain import NUM_STATUS_COLUMNS

from .batch import StepBatch
from .state import RoundState, send


def decode_batch(state: RoundState, num_requests: int) -> StepBatch:
    """The persistent layout of a decode round of `num_requests` requests; every row is the dummy slot at first."""
    num_drafts = state.drafts_SK.shape[1]
    q, num_draft_rows = num_drafts + 1, state.depth + 1
    rows = torch.arange(num_requests * q, dtype=torch.int64)
    device = state.device
    return StepBatch(
        num_requests=num_requests,
        num_rows=num_requests * q,
        slot_B=torch.full((num_requests,), state.dummy_slot, dtype=torch.int64, device=device),
        row_req_T=(rows // q).to(device),
        row_off_T=(rows % q).to(torch.int32).to(device),
        num_drafts_B=torch.full((num_requests,), num_drafts, dtype=torch.int32, device=device),
        q_len_B=torch.full((num_requests,), q, dtype=torch.int32, device=device),
        base_row_B=(torch.arange(num_requests, dtype=torch.int64) * num_draft_rows).to(device),
        cu_q_B1=(torch.arange(num_requests + 1, dtype=torch.int32) * q).to(device),
        logit_row_R=None,
        advance_B=None,
        num_decodes=num_requests,
        decode_q=q,
        max_chunk=0,
        max_kv=state.max_kv,
        q_lens=(q,) * num_requests,
        **_outputs(state, num_requests, num_requests * q, num_requests),
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

    @property
    def num_advanced(self) -> int:
        """Prompt tokens that become computed before acceptance; the last one counts with the token sampled after it."""
        return 0 if self.is_padding else self.num_rows - self.is_last_chunk


def mixed_batch(state: RoundState, entries: list[MixedEntry]) -> StepBatch:
    """The ragged layout of one mixed step; decodes stand before prompt chunks."""
    num_decodes = sum(not e.is_prefill for e in entries)
    assert not any(e.is_prefill for e in entries[:num_decodes]), "decodes come first"
    num_drafts = state.drafts_SK.shape[1]
    # Verification brings K+1 rows a decode; the drafter goes on over the accepted path, which a tree makes shorter.
    num_path_rows = state.depth + 1
    num_saved = num_decodes * (num_drafts - state.depth)
    row_req: list[int] = []
    row_off: list[int] = []
    num_drafts_B, base_row, logit_rows, advance, cu_q = [], [], [], [], [0]
    for index, entry in enumerate(entries):
        first, last = cu_q[-1], cu_q[-1] + entry.num_rows - 1
        row_req += [index] * entry.num_rows
        row_off += [0] * entry.num_rows if entry.is_padding else range(entry.num_rows)
        cu_q.append(last + 1)
        if entry.is_prefill:
            num_drafts_B.append(0 if entry.is_last_chunk else -1)
            base_row.append(last - num_saved)
            logit_rows += [last] * (num_drafts + 1)
            advance.append(entry.num_advanced)
        else:
            num_drafts_B.append(num_drafts)
            base_row.append(index * num_path_rows)
            logit_rows += range(first, last + 1)
            advance.append(0)
    i32, i64 = torch.int32, torch.int64
    return StepBatch(
        num_requests=len(entries),
        num_rows=len(row_req),
        slot_B=state.upload([e.slot for e in entries], i64),
        row_req_T=send(torch.tensor(row_req, dtype=i64), state.device),
        row_off_T=send(torch.tensor(row_off, dtype=i32), state.device),
        num_drafts_B=state.upload(num_drafts_B, i32),
        # Padding rows have no keys: a layout may hold more of them than a slot has positions.
        q_len_B=state.upload([0 if e.is_padding else e.num_rows for e in entries], i32),
        base_row_B=state.upload(base_row, i64),
        cu_q_B1=state.upload(cu_q, i32),
        logit_row_R=state.upload(logit_rows, i64),
        advance_B=state.upload(advance, i32),
        num_decodes=num_decodes,
        decode_q=num_drafts + 1,
        max_chunk=max((e.num_rows for e in entries[num_decodes:]), default=0),
        chunk_cu_q_B1=state.upload([row - cu_q[num_decodes] for row in cu_q[num_decodes:]], i32),
        max_kv=min(max(e.kv_len for e in entries) + state.lookahead.reach, state.max_kv),  # drafting goes beyond
        q_lens=tuple(e.num_rows for e in entries),
        slots=tuple(e.slot for e in entries),
        **_outputs(state, len(entries), len(row_req), num_decodes),
    )


def _outputs(state: RoundState, num_requests: int, num_rows: int, num_decodes: int) -> dict[str, Any]:
    def empty(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=state.device)

    return dict(
        ids_T=empty(num_rows, dtype=torch.int64),
        position_T=empty(num_rows, dtype=torch.int64),
        kv_slot_T=empty(num_rows, dtype=torch.int64),
        kv_len_B=empty(num_requests, dtype=torch.int32),
        block_table_BP=empty(num_requests, state.block_table_SP.shape[1], dtype=torch.int32),
        sample_row_B=empty(num_requests, dtype=torch.int64),
        status_BX=empty(num_requests, NUM_STATUS_COLUMNS + 1 + state.depth, dtype=torch.int32),
        next_ids_B=empty(num_requests, dtype=torch.int64),
        next_position_B=empty(num_requests, dtype=torch.int64),
        next_kv_slot_B=empty(num_requests, dtype=torch.int64),
        next_kv_len_B=empty(num_requests, dtype=torch.int32),
        next_cu_q_B1=torch.arange(num_requests + 1, dtype=torch.int32, device=state.device),
        **_tree_outputs(state, num_requests, num_decodes),
    )


def _tree_outputs(state: RoundState, num_requests: int, num_decodes: int) -> dict[str, Any]:
    if state.tree is None:
        return {}
    q = state.drafts_SK.shape[1] + 1
    return dict(
        tree_mask_BDD=torch.zeros(num_decodes, q, q, dtype=torch.bool, device=state.device),
        path_BS1=torch.zeros(num_requests, state.depth + 1, dtype=torch.int64, device=state.device),
    )
