"""Makes the layouts of steps.

A decode round is uniform and its layout is fixed, so its tensors persist and can be captured; a mixed step is ragged
and gets its own layout. Legend: batch.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.scheduler import ScheduledRows
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.upload import Array, join, send, send_into, split
from specbench.kernels.buffers import Outcome, PassRows, Rows
from specbench.kernels.commit import NUM_STATUS_COLUMNS

_OF_ROWS = ("slot_B", "row_req_T", "row_off_T", "num_drafts_B", "q_len_B", "base_row_B")


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
        logit_row_N=None,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedLayout:
    """What the host writes of a mixed step: fields of `Rows` and `StepBatch` by name, decodes before prompt chunks."""

    int64: dict[str, Array]
    int32: dict[str, Array]
    num_drafts: int
    num_decodes: int
    max_chunk: int
    max_kv: int
    q_lens: tuple[int, ...]
    slots: tuple[int, ...]

    @staticmethod
    def of(state: RoundState, entries: list[MixedEntry], num_drafts: int | None = None) -> MixedLayout:
        """`num_drafts`: as in a decode round."""
        num_decodes = sum(not e.is_prefill for e in entries)
        assert not any(e.is_prefill for e in entries[:num_decodes]), "decodes come first"
        num_drafts = state.drafts_SK.shape[1] if num_drafts is None else num_drafts
        # Verification brings K+1 rows a decode; the drafter goes on over the accepted path, which a tree makes shorter.
        num_path_rows = state.path_drafts(num_drafts) + 1
        num_saved = num_decodes * (num_drafts + 1 - num_path_rows)
        logit_rows: list[int] = []
        drafts, base_row, spread, advance, cu_q = [], [], [], [], [0]
        for index, entry in enumerate(entries):
            first, last, num_before = cu_q[-1], cu_q[-1] + entry.num_rows - 1, len(logit_rows)
            cu_q.append(last + 1)
            if entry.is_prefill:
                drafts.append(0 if entry.is_last_chunk else -1)
                base_row.append(last - num_saved)
                logit_rows += [last] * (entry.num_rows > 0)
                spread += [len(logit_rows) - 1] * (num_drafts + 1)
                advance.append(entry.num_advanced)
            else:
                drafts.append(num_drafts)
                base_row.append(index * num_path_rows)
                logit_rows += range(first, last + 1)
                spread += range(num_before, len(logit_rows))
                advance.append(0)
        # As arrays: lists of thousands of rows would take the host as long as a small model's step takes the device.
        row_req = np.repeat(np.arange(len(entries)), np.diff(cu_q))
        row_off = np.arange(cu_q[-1]) - np.array(cu_q)[row_req]
        row_off[np.array([e.is_padding for e in entries])[row_req]] = 0
        slots = tuple(e.slot for e in entries)
        return MixedLayout(
            int64=dict(
                slot_B=list(slots), row_req_T=row_req, base_row_B=base_row, logit_row_N=logit_rows, spread_R=spread
            ),
            int32=dict(
                row_off_T=row_off,
                num_drafts_B=drafts,
                # Padding rows have no keys: a layout may hold more of them than a slot has positions.
                q_len_B=[0 if e.is_padding else e.num_rows for e in entries],
                cu_q_B1=cu_q,
                advance_B=advance,
                chunk_cu_q_B1=[row - cu_q[num_decodes] for row in cu_q[num_decodes:]],
            ),
            num_drafts=num_drafts,
            num_decodes=num_decodes,
            max_chunk=max((e.num_rows for e in entries[num_decodes:]), default=0),
            max_kv=min(max(e.kv_len for e in entries) + state.lookahead.reach, state.max_kv),  # drafting goes beyond
            q_lens=tuple(e.num_rows for e in entries),
            slots=slots,
        )

    def for_capture(self, max_kv: int) -> MixedLayout:
        """The layout with launches that depend on its numbers of rows and requests alone: all rows go through attention
        as ragged ones, and as many have logits as could be needed."""
        num_rows, spread, logit_rows = sum(self.q_lens), self.int64["spread_R"], self.int64["logit_row_N"]
        logit_row_N = np.zeros(min(num_rows, len(spread)), dtype=np.int64)
        logit_row_N[: len(logit_rows)] = logit_rows
        int64 = {**self.int64, "logit_row_N": logit_row_N}
        int32 = {**self.int32, "chunk_cu_q_B1": self.int32["cu_q_B1"]}
        return replace(self, int64=int64, int32=int32, num_decodes=0, max_chunk=num_rows, max_kv=max_kv)

    def joined(self) -> tuple[Tensor, Tensor]:
        """The host's tensors, one after another: `int64`, then `int32`."""
        return join([*self.int64.values()], torch.int64), join([*self.int32.values()], torch.int32)

    def overwrite(self, batch: StepBatch) -> None:
        """Sends the step in place of the one that the batch was made for, which a captured graph has the addresses
        of."""
        for tensor, new in zip(batch.host_part, self.joined(), strict=True):
            assert tensor.shape == new.shape, "another layout"
            send_into(tensor, new)
        batch.q_lens = self.q_lens


def mixed_batch(state: RoundState, layout: MixedLayout) -> StepBatch:
    """The ragged layout of one mixed step, with space for what the device fills in."""
    wide, narrow = (send(tensor, state.device) for tensor in layout.joined())
    fields = dict(zip(layout.int64, split(wide, [*layout.int64.values()]), strict=True))
    fields |= zip(layout.int32, split(narrow, [*layout.int32.values()]), strict=True)
    num_requests = len(layout.slots)
    return StepBatch(
        num_requests=num_requests,
        num_rows=sum(layout.q_lens),
        rows=_rows(state, layout.num_decodes, **{name: fields[name] for name in _OF_ROWS}),
        outcome=_outcome(state, num_requests, layout.num_drafts),
        next_rows=PassRows.new(num_requests, num_requests, state.device),
        next_cu_q_B1=torch.arange(num_requests + 1, dtype=torch.int32, device=state.device),
        num_decodes=layout.num_decodes,
        decode_q=layout.num_drafts + 1,
        max_chunk=layout.max_chunk,
        max_kv=layout.max_kv,
        q_lens=layout.q_lens,
        slots=layout.slots,
        cu_q_B1=fields["cu_q_B1"],
        chunk_cu_q_B1=fields["chunk_cu_q_B1"],
        logit_row_N=fields["logit_row_N"],
        spread_R=fields["spread_R"],
        advance_B=fields["advance_B"],
        host_part=(wide, narrow),
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
