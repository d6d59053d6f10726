"""The tree drafter of EAGLE heads: one pass over the accepted path, then topk rows per request for each further level.

Legend: T rows of the step, B requests, W = tree depth + 1 rows of a path, k = topk, H hidden size of the head.
Dataflow as in SafeAILab/EAGLE (`topK_genrate`) over a padded batch: shapes never depend on how much was accepted. The
levels' keys are stored after the request's n tokens and are overwritten by the next round's first pass.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.planning import attention_phase, plan_pass
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.strategy import Drafter, DraftHead, EngineResources, Phase
from specbench.harness.engines.native.core.tree import TreeShape
from specbench.harness.engines.native.models.forward import AttentionPart, ForwardBatch
from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.buffers import PassRows
from specbench.kernels.tree_build import build_tree
from specbench.kernels.tree_draft_rows import tree_first_rows, tree_level_rows
from specbench.kernels.tree_expand import expand_tree, new_tree_pool


class TreeDrafter(Drafter):
    """One tree of drafts per round from an EAGLE head, bound to one engine's buffers."""

    model: DraftHead

    def __init__(self, head: DraftHead, shape: TreeShape, resources: EngineResources):
        if resources.drafter_rows != "padded":
            raise ValueError(f"drafter={resources.drafter_rows!r} is not allowed with a draft tree; allowed: padded")
        self.num_drafts = shape.num_nodes - 1
        self.model = head
        self.features = head.features
        self._shape = shape
        self._state = resources.state
        self._update = resources.update
        self.sampled = resources.sampled_drafts(head)
        self._hidden_like_H = torch.empty(
            head.config.hidden_size, dtype=resources.target.dtype, device=resources.target.device
        )
        self._attention = resources.new_attention(head)
        self._cache = resources.new_kv_cache(head.config.num_kv_heads, head.config.head_dim)

    def first_rows(self, num_drafts: int) -> int:
        return self._shape.depth + 1

    def phases(self, batch: StepBatch) -> list[Phase]:
        rows = TreeRows(batch, self._state, self._shape, self._hidden_like_H)
        attention = self._attention
        first, plan = partial(self._draft_first, rows), partial(self._plan_first, rows)
        phases = [attention_phase("draft_first", attention, first, plan)]
        for level in range(2, self._shape.depth + 1):
            run, plan = partial(self._draft_level, rows, level), partial(self._plan_level, rows, level)
            phases.append(attention_phase("draft_next", attention, run, plan))
        return phases

    # -- the accepted path -------------------------------------------------------------------------------------------

    def _draft_first(self, rows: TreeRows, b: StepBatch) -> None:
        """Rows of the accepted path and of prompt chunks: true features of position p with the token of p+1."""
        features_TF, forward = b.work.features_TF, rows.first
        assert features_TF is not None
        b.work.num_draft_rows = forward.ids_T.shape[0]
        num_nodes, path_feature_row_T = self._shape.num_nodes, rows.feature_row_T[: rows.num_path_rows]
        tree_first_rows(rows.path, path_feature_row_T, b.outcome, b.rows.slot_B, self._state, num_nodes)
        if b.num_decodes < b.num_requests:
            self._fill_chunks(rows, b)
        hidden_TH = self.model.project(features_TF.index_select(0, rows.feature_row_T))
        first, wanted_R = b.runners.first, b.outcome.sample_row_B
        self._grow(1, rows, b, first(self.model, forward, self._attention, self._cache, hidden_TH, wanted_R=wanted_R))

    def _fill_chunks(self, rows: TreeRows, b: StepBatch) -> None:
        """Prompt chunks are rows of the drafter's pass, as they are of the target's."""
        first, end = b.num_decodes * b.decode_q, rows.num_path_rows
        forward, row_req_T, position_T = rows.first, b.rows.row_req_T[first:], b.rows.position_T[first:]
        forward.position_T[end:] = position_T
        forward.kv_slot_T[end:] = b.rows.kv_slot_T[first:]
        self._update.draft_first_ids(b.rows.slot_B, row_req_T, position_T, self._state.tokens_SL, forward.ids_T[end:])

    def _plan_first(self, rows: TreeRows, b: StepBatch, host: HostView) -> None:
        q_lens = [self._shape.depth + 1] * b.num_decodes + list(b.q_lens[b.num_decodes :])
        plan_pass(rows.first, host, self._attention, self._cache, host.kv_lens(q_lens), q_lens)

    # -- the levels --------------------------------------------------------------------------------------------------

    def _draft_level(self, rows: TreeRows, level: int, b: StepBatch) -> None:
        """Runs the level's k rows per request, each continuing its parent's row; their children become candidates."""
        pass_rows, forward = rows.levels[level - 2]
        tree_level_rows(pass_rows, b.rows.slot_B, self._state, self._shape.topk, level)
        output_RH = b.runners.later(self.model, forward, self._attention, self._cache, rows.hidden_RH)
        self._grow(level, rows, b, output_RH)

    def _grow(self, level: int, rows: TreeRows, b: StepBatch, output_RH: Tensor) -> None:
        """Adds the pass's children to the pool; then the next level's hidden states, or the tree after the last
        level."""
        logits_RV, state_RH = self.model.logits_and_state(output_RH)
        sampled = self.sampled if self.sampled is not None and self.sampled.draws(b.mode) else None
        if sampled is None:
            expand_tree(logits_RV, self.model.d2t, rows.pool, level)
        else:
            sampled.draw_level(logits_RV, b.rows.slot_B, rows.pool, level, b.mode)
        if level < self._shape.depth:
            torch.index_select(state_RH, 0, rows.pool.row_Bk.view(-1), out=rows.hidden_RH)
            return
        assert self._state.tree is not None
        build_tree(b.rows.slot_B, rows.pool, self._state.drafts_SK, self._state.tree)
        if sampled is not None:
            sampled.note_tree(b.rows.slot_B, rows.pool)

    def _plan_level(self, rows: TreeRows, level: int, b: StepBatch, host: HostView) -> None:
        topk = self._shape.topk
        kv_lens = [n + (level - 1) * topk for _, n in host.accepted()]
        _, forward = rows.levels[level - 2]
        plan_pass(forward, host, self._attention, self._cache, kv_lens, (topk,) * b.num_requests)


class TreeRows:
    """The drafter's rows of one layout: persistent, so that passes may be captured apart from each other.

    They differ from the target's: W rows per decode where verification has D, and k per request for each level.
    """

    def __init__(self, b: StepBatch, state: RoundState, shape: TreeShape, hidden_like_H: Tensor):
        device, k, num_requests = state.device, shape.topk, b.num_requests
        self.num_path_rows = b.num_decodes * (shape.depth + 1)
        num_chunk_rows = b.num_rows - b.num_decodes * b.decode_q
        self.feature_row_T = torch.zeros(self.num_path_rows + num_chunk_rows, dtype=torch.int64, device=device)
        torch.arange(b.num_decodes * b.decode_q, b.num_rows, out=self.feature_row_T[self.num_path_rows :])
        self.pool = new_tree_pool(num_requests, k, shape.depth, device)
        self.hidden_RH = hidden_like_H.new_zeros(num_requests * k, hidden_like_H.shape[0])
        self.path, self.first = self._first_pass(b, state, shape.depth + 1, num_chunk_rows)
        cu_q_B1 = torch.arange(num_requests + 1, dtype=torch.int32, device=device) * k
        self.levels = [self._level_pass(b, state, mask_BkM, cu_q_B1) for mask_BkM in self.pool.masks]

    def _first_pass(
        self, b: StepBatch, state: RoundState, width: int, num_chunk_rows: int
    ) -> tuple[PassRows, ForwardBatch]:
        """The rows of the paths, and the pass over them, followed by the prompt chunks."""
        decodes, end = b.num_decodes, self.num_path_rows
        every = PassRows.new(end + num_chunk_rows, decodes, state.device)
        cu_q_B1 = torch.arange(decodes + 1, dtype=torch.int32, device=state.device) * width if decodes else b.cu_q_B1
        parts = b.parts(width, cu_q_B1, every.kv_len_B, state.max_kv)
        path = PassRows(
            ids_T=every.ids_T[:end],
            position_T=every.position_T[:end],
            kv_slot_T=every.kv_slot_T[:end],
            kv_len_B=every.kv_len_B,
        )
        return path, ForwardBatch.over(every, *parts)

    def _level_pass(
        self, b: StepBatch, state: RoundState, mask_BkM: Tensor, cu_q_B1: Tensor
    ) -> tuple[PassRows, ForwardBatch]:
        num_requests, topk, _ = mask_BkM.shape
        rows = PassRows.new(num_requests * topk, num_requests, state.device)
        rows.ids_T = self.pool.ids_Bk.view(-1)
        meta = AttentionMetadata.uniform(
            cu_q_B1, rows.kv_len_B, b.rows.block_table_BP, q=topk, max_kv=state.max_kv, mask_BQM=mask_BkM
        )
        return rows, ForwardBatch.over(rows, AttentionPart(0, num_requests * topk, meta))
