"""The tree drafter of EAGLE heads: one pass over the accepted path, then topk rows a request for each further level.

Legend: T rows of the step, B requests, W = tree depth + 1 rows of a path, k = topk, H hidden size of the head.
Dataflow as in SafeAILab/EAGLE (`topK_genrate`) over a padded batch: shapes never depend on how much was accepted. The
levels' keys stand behind the request's n tokens and are overwritten by the next round's first pass.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from specbench.harness.engine.batch import StepBatch
from specbench.harness.engine.host_view import HostView
from specbench.harness.engine.state import RoundState
from specbench.harness.engine.strategy import DraftHead, EngineResources, Phase
from specbench.harness.engine.tree import TreeShape
from specbench.harness.models.features import Features
from specbench.harness.models.llama import AttentionPart, ForwardBatch
from specbench.kernels.attention.base import AttentionMetadata, PlannedAttentionBackend
from specbench.kernels.tree_build import build_tree
from specbench.kernels.tree_draft_rows import tree_first_rows, tree_level_rows
from specbench.kernels.tree_expand import expand_tree, new_tree_pool


class TreeDrafter:
    """A tree of drafts a round from an EAGLE head, bound to one engine's buffers."""

    bounded_parts: frozenset[str] = frozenset()  # its rows have layouts of their own

    def __init__(self, head: DraftHead, shape: TreeShape, resources: EngineResources):
        if resources.drafter_rows != "padded":
            raise ValueError(f"drafter={resources.drafter_rows!r} is not allowed with a draft tree; allowed: padded")
        self.num_drafts = shape.num_nodes - 1
        self._head = head
        self._shape = shape
        self._state = resources.state
        self._update = resources.update
        self._hidden_like_H = torch.empty(
            head.config.hidden_size, dtype=resources.target.dtype, device=resources.target.device
        )
        self._attention = resources.new_attention(head)
        self._cache = resources.new_kv_cache(head.config.num_kv_heads, head.config.head_dim)

    @property
    def features(self) -> Features:
        return self._head.features

    def phases(self, batch: StepBatch) -> list[Phase]:
        rows = TreeRows(batch, self._state, self._shape, self._hidden_like_H)
        planned = self._attention.backend.is_planned
        phases = [
            Phase("draft_first", partial(self._draft_first, rows), partial(self._plan_first, rows) if planned else None)
        ]
        for level in range(2, self._shape.depth + 1):
            plan = partial(self._plan_level, rows, level) if planned else None
            phases.append(Phase("draft_next", partial(self._draft_level, rows, level), plan))
        return phases

    # -- the accepted path -------------------------------------------------------------------------------------------

    def _draft_first(self, rows: TreeRows, b: StepBatch) -> None:
        """Rows of the accepted path and of prompt chunks: true features of position p with the token of p+1."""
        s, features_TF = self._state, b.work.features_TF
        assert features_TF is not None and b.path_BS1 is not None
        end = rows.num_path_rows
        forward = rows.first
        b.work.num_draft_rows = forward.ids_T.shape[0]
        tree_first_rows(
            b.path_BS1,
            b.status_BX,
            b.slot_B,
            s.tokens_SL,
            s.block_table_SP,
            s.page_size,
            self._shape.num_nodes,
            forward.ids_T[:end],
            forward.position_T[:end],
            forward.kv_slot_T[:end],
            rows.path_kv_len_B,
            rows.feature_row_T[:end],
        )
        if b.num_decodes < b.num_requests:
            self._fill_chunks(rows, b)
        hidden_TH = self._head.project(features_TF.index_select(0, rows.feature_row_T))
        output_TH = b.runners.first(self._head, forward, self._attention, self._cache, hidden_TH)
        self._grow(1, rows, b, output_TH.index_select(0, b.sample_row_B))

    def _fill_chunks(self, rows: TreeRows, b: StepBatch) -> None:
        """Prompt chunks stand in the drafter's pass as in the target's."""
        first, end = b.num_decodes * b.decode_q, rows.num_path_rows
        forward = rows.first
        forward.position_T[end:] = b.position_T[first:]
        forward.kv_slot_T[end:] = b.kv_slot_T[first:]
        self._update.draft_first_ids(
            b.slot_B, b.row_req_T[first:], b.position_T[first:], self._state.tokens_SL, forward.ids_T[end:]
        )

    def _plan_first(self, rows: TreeRows, b: StepBatch, host: HostView) -> None:
        decodes, width = b.num_decodes, self._shape.depth + 1
        q_lens = [width] * decodes + list(b.q_lens[decodes:])
        kv_len = [n + q for n, q in zip(host.num_computed, q_lens, strict=True)]
        first = 0
        for part in rows.first.parts:
            end = first + part.meta.kv_len_B.shape[0]
            self._plan(part.meta, host, kv_len[first:end], q_lens[first:end], first)
            first = end

    # -- the levels --------------------------------------------------------------------------------------------------

    def _draft_level(self, rows: TreeRows, level: int, b: StepBatch) -> None:
        """The level's k rows a request, each continuing its parent's row; their children become candidates."""
        s, forward = self._state, rows.levels[level - 2]
        tree_level_rows(
            level,
            b.slot_B,
            s.n_S,
            s.block_table_SP,
            s.page_size,
            self._shape.topk,
            forward.position_T,
            forward.kv_slot_T,
            forward.parts[0].meta.kv_len_B,
        )
        output_RH = b.runners.later(self._head, forward, self._attention, self._cache, rows.hidden_RH)
        self._grow(level, rows, b, output_RH)

    def _grow(self, level: int, rows: TreeRows, b: StepBatch, output_RH: Tensor) -> None:
        """The pass' children into the pool; then the next level's hidden states, or the tree where it was the last."""
        logits_RV, state_RH = self._head.logits_and_state(output_RH)
        expand_tree(level, logits_RV, self._head.d2t, rows.pool)
        if level < self._shape.depth:
            torch.index_select(state_RH, 0, rows.pool.row_Bk.view(-1), out=rows.hidden_RH)
            return
        tree = self._state.tree
        assert tree is not None
        build_tree(rows.pool, b.slot_B, self._state.drafts_SK, tree.parent_SD, tree.depth_SD, tree.mask_SDD)

    def _plan_level(self, rows: TreeRows, level: int, b: StepBatch, host: HostView) -> None:
        topk = self._shape.topk
        kv_len = [n + (level - 1) * topk for _, n in host.accepted()]
        self._plan(rows.levels[level - 2].parts[0].meta, host, kv_len, [topk] * b.num_requests, 0)

    def _plan(self, meta: AttentionMetadata, host: HostView, kv_len: list[int], q_lens: list[int], first: int) -> None:
        backend: PlannedAttentionBackend = self._attention.backend  # type: ignore[assignment]
        backend.plan(meta, host.lengths(kv_len, q_lens, first), self._attention.geometry(self._cache))


class TreeRows:
    """The drafter's rows of one layout: persistent, so that passes may be captured apart from each other.

    They differ from the target's: W rows a decode where verification has D, and k of each request for each level.
    """

    def __init__(self, b: StepBatch, state: RoundState, shape: TreeShape, hidden_like_H: Tensor):
        device, k, num_requests = state.device, shape.topk, b.num_requests
        self.num_path_rows = b.num_decodes * (shape.depth + 1)
        num_chunk_rows = b.num_rows - b.num_decodes * b.decode_q
        self.path_kv_len_B = torch.zeros(b.num_decodes, dtype=torch.int32, device=device)
        self.feature_row_T = torch.zeros(self.num_path_rows + num_chunk_rows, dtype=torch.int64, device=device)
        torch.arange(b.num_decodes * b.decode_q, b.num_rows, out=self.feature_row_T[self.num_path_rows :])
        self.pool = new_tree_pool(num_requests, k, shape.depth, device)
        self.hidden_RH = hidden_like_H.new_zeros(num_requests * k, hidden_like_H.shape[0])
        self.first = self._first_forward(b, state, shape.depth + 1, num_chunk_rows)
        cu_q_B1 = torch.arange(num_requests + 1, dtype=torch.int32, device=device) * k
        self.levels = [self._level_forward(b, state, mask_BkM, cu_q_B1) for mask_BkM in self.pool.masks]

    def _first_forward(self, b: StepBatch, state: RoundState, width: int, num_chunk_rows: int) -> ForwardBatch:
        decodes, end = b.num_decodes, self.num_path_rows
        parts = []
        if decodes:
            cu_q_B1 = torch.arange(decodes + 1, dtype=torch.int32, device=state.device) * width
            meta = _meta(cu_q_B1, self.path_kv_len_B, b.block_table_BP[:decodes], width, state.max_kv, True)
            parts.append(AttentionPart(0, end, meta))
        if decodes < b.num_requests:
            assert b.chunk_cu_q_B1 is not None
            kv_len_B, table_BP = b.kv_len_B[decodes:], b.block_table_BP[decodes:]
            meta = _meta(b.chunk_cu_q_B1, kv_len_B, table_BP, b.max_chunk, state.max_kv, False)
            parts.append(AttentionPart(end, num_chunk_rows, meta))
        return _rows(end + num_chunk_rows, state, parts)

    def _level_forward(self, b: StepBatch, state: RoundState, mask_BkM: Tensor, cu_q_B1: Tensor) -> ForwardBatch:
        num_requests, topk, _ = mask_BkM.shape
        kv_len_B = torch.zeros(num_requests, dtype=torch.int32, device=state.device)
        meta = _meta(cu_q_B1, kv_len_B, b.block_table_BP, topk, state.max_kv, True)
        meta.tree_mask_BQM = mask_BkM
        forward = _rows(num_requests * topk, state, [AttentionPart(0, num_requests * topk, meta)])
        forward.ids_T = self.pool.ids_Bk.view(-1)
        return forward


def _rows(num_rows: int, state: RoundState, parts: list[AttentionPart]) -> ForwardBatch:
    ids_T, position_T, kv_slot_T = (torch.zeros(num_rows, dtype=torch.int64, device=state.device) for _ in range(3))
    return ForwardBatch(ids_T, position_T, kv_slot_T, tuple(parts))


def _meta(
    cu_q_B1: Tensor, kv_len_B: Tensor, block_table_BP: Tensor, max_q: int, max_kv: int, uniform: bool
) -> AttentionMetadata:
    return AttentionMetadata(
        cu_q_B1=cu_q_B1,
        kv_len_B=kv_len_B,
        block_table_BP=block_table_BP,
        max_q=max_q,
        max_kv=max_kv,
        uniform=uniform,
    )
