"""The layout of one step: which rows belong to which request.

Legend: B requests, Q = K+1 rows a request in a decode round, T rows in all, P pages a request, D = K+1 nodes and S the
depth of a draft tree.
A decode round is uniform and its layout is fixed, so its tensors persist and can be captured; a mixed step is ragged
and its layout is made for that step. Every phase works on either.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from specbench.harness.models.llama import AttentionPart, ForwardBatch
from specbench.kernels.accept_chain import NUM_STATUS_COLUMNS
from specbench.kernels.attention.base import AttentionMetadata

from .forward import EAGER, Runners
from .state import RoundState, send


@dataclass(slots=True)
class Work:
    """Results that one phase leaves for the next.

    What crosses from the target's part to the drafter's, or from the first pass to the later ones, lies in tensors that
    persist with a decode layout: those parts may be launched differently (one captured, the other not).
    """

    features_TF: Tensor | None = None  # persistent in decode layouts
    hidden_TH: Tensor | None = None
    draft_state_BH: Tensor | None = None  # persistent in decode layouts
    next_state_BH: Tensor | None = None
    num_draft_rows: int = 0  # rows of the drafter's first pass


@dataclass(slots=True, kw_only=True)
class StepBatch:
    """Layout (inputs) and per-step device buffers (outputs of phases) of one step."""

    num_requests: int
    num_rows: int
    slot_B: Tensor  # int64
    row_req_T: Tensor  # int64, index into B
    row_off_T: Tensor  # int32, row within its request
    num_drafts_B: Tensor  # int32: K; 0 on a prompt's last chunk; -1 on an earlier chunk
    q_len_B: Tensor  # int32
    base_row_B: Tensor  # int64: the request's first row in the drafter's first pass; a prompt chunk's last
    cu_q_B1: Tensor  # int32
    logit_row_R: Tensor | None  # int64 [B*Q], None: every row
    advance_B: Tensor | None  # int32: prompt tokens that become computed before acceptance; None in decode rounds
    ids_T: Tensor
    position_T: Tensor
    kv_slot_T: Tensor
    kv_len_B: Tensor
    block_table_BP: Tensor
    sample_row_B: Tensor
    status_BX: Tensor
    next_ids_B: Tensor
    next_position_B: Tensor
    next_kv_slot_B: Tensor
    next_kv_len_B: Tensor
    next_cu_q_B1: Tensor
    num_decodes: int  # requests that bring decode_q rows each; they come first
    decode_q: int
    max_chunk: int  # rows of the longest prompt chunk
    max_kv: int
    q_lens: tuple[int, ...]  # rows of each request, padding included
    chunk_cu_q_B1: Tensor | None = None  # int32: first rows of the chunks, counted from the first chunk's
    tree_mask_BDD: Tensor | None = None  # bool, of the decodes: which own rows a row sees; None: causal
    path_BS1: Tensor | None = None  # int64 [B, S+1]: accepted nodes of each request's tree
    runners: Runners = EAGER
    slots: tuple[int, ...] = ()  # of the real requests, in order
    work: Work = field(default_factory=Work)
    _forwards: dict[tuple[str, int], ForwardBatch] = field(default_factory=dict)
    _bounds: dict[str, int] = field(default_factory=dict)  # by drafter part: most keys, where the host has read it

    def target_forward(self) -> ForwardBatch:
        """The rows of the target's pass: decodes stand first and are uniform, prompt chunks follow and are ragged."""
        return self._kept("target", 0, lambda: self._step_rows(self.max_kv))

    def drafter_forward(self) -> ForwardBatch:
        """The same rows for the drafter, with metadata of its own: backends plan for one model's heads."""
        return self._kept("first", 0, lambda: self._step_rows(self.bound_of("first")))

    def draft_step_forward(self, step: int) -> ForwardBatch:
        """One row a request: the later pass number `step` of a chain drafter."""
        return self._kept("later", step, self._one_row_each)

    def _kept(self, kind: str, step: int, make: Callable[[], ForwardBatch]) -> ForwardBatch:
        """One ForwardBatch for each pass of the layout: what a backend planned or captured over it stays valid."""
        if (kind, step) not in self._forwards:
            self._forwards[kind, step] = make()
        return self._forwards[kind, step]

    def bound_drafter(self, parts: Set[str], longest: int) -> None:
        """Tells the launches of these drafter parts that no request has more than `longest` tokens with KV.

        A part that is captured must not be among them: its graph would keep the bound of the round it was made in.
        """
        most = min(longest + 2 * self.decode_q, self.max_kv)
        self._bounds = dict.fromkeys(parts, most)
        for (kind, _), forward in self._forwards.items():
            if kind in parts:
                for part in forward.parts:
                    part.meta.max_kv = most

    def bound_of(self, part: str) -> int:
        """Most keys of a request in a drafter part (first or later)."""
        return self._bounds.get(part, self.max_kv)

    def _step_rows(self, max_kv: int) -> ForwardBatch:
        decodes, rows = self.num_decodes, self.num_decodes * self.decode_q
        parts = []
        if decodes:
            parts.append(
                AttentionPart(0, rows, self._meta(0, decodes, self.cu_q_B1[: decodes + 1], self.decode_q, max_kv, True))
            )
            parts[0].meta.tree_mask_BQM = self.tree_mask_BDD
        if decodes < self.num_requests:
            assert self.chunk_cu_q_B1 is not None
            meta = self._meta(decodes, self.num_requests, self.chunk_cu_q_B1, self.max_chunk, max_kv, False)
            parts.append(AttentionPart(rows, self.num_rows - rows, meta))
        return ForwardBatch(self.ids_T, self.position_T, self.kv_slot_T, tuple(parts))

    def _meta(self, first: int, end: int, cu_q_B1: Tensor, max_q: int, max_kv: int, uniform: bool) -> AttentionMetadata:
        return AttentionMetadata(
            cu_q_B1=cu_q_B1,
            kv_len_B=self.kv_len_B[first:end],
            block_table_BP=self.block_table_BP[first:end],
            max_q=max_q,
            max_kv=max_kv,
            uniform=uniform,
        )

    def _one_row_each(self) -> ForwardBatch:
        meta = AttentionMetadata(
            cu_q_B1=self.next_cu_q_B1,
            kv_len_B=self.next_kv_len_B,
            block_table_BP=self.block_table_BP,
            max_q=1,
            max_kv=self.bound_of("later"),
            uniform=True,
        )
        part = AttentionPart(0, self.num_requests, meta)
        return ForwardBatch(self.next_ids_B, self.next_position_B, self.next_kv_slot_B, (part,))


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
