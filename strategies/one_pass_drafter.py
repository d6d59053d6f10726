"""The drafter of heads that draft all tokens in one pass (P-EAGLE, PARD): placeholders stand for the unknown drafts.

Runs the verified rows again, like an EAGLE chain, with K - 1 more rows per request; rows after the last accepted token
are placeholders: one fixed token, and learned features in place of the target's. The next round overwrites all their
keys. Dataflow as in vLLM's parallel drafting with a padded batch.
Legend: B requests, T rows of the step, N = T + B * (K - 1) rows of the pass, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.planning import attention_phase
from specbench.harness.engines.native.core.strategy import DraftHead, EngineResources, Phase
from specbench.harness.engines.native.models.forward import AttentionPart, ForwardBatch
from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.buffers import PassRows

from .chain import Chain


@dataclass(frozen=True, slots=True)
class _Layout:
    """Persistent inputs of one layout's pass."""

    more: int  # placeholders after the rows of each request
    rows: PassRows
    source_N: Tensor
    cu_q_B1: Tensor  # int32
    chunk_cu_q_B1: Tensor  # int32: of the prompt chunks, counted from the first chunk's
    forward: ForwardBatch

    @staticmethod
    def of(b: StepBatch) -> _Layout:
        more, decodes, device = max(b.num_drafts, 1) - 1, b.num_decodes, b.rows.slot_B.device
        num_rows = b.num_rows + b.num_requests * more
        rows = PassRows.new(num_rows, b.num_requests, device)
        cu_q_B1, table_BP = torch.empty_like(b.cu_q_B1), b.rows.block_table_BP
        chunk_cu_q_B1 = torch.empty_like(cu_q_B1[decodes:])
        parts, num_decode_rows = [], decodes * (b.decode_q + more)
        if decodes:
            cu, kv_len_B, q = cu_q_B1[: decodes + 1], rows.kv_len_B[:decodes], b.decode_q + more
            meta = AttentionMetadata.uniform(cu, kv_len_B, table_BP[:decodes], q=q, max_kv=b.max_kv)
            parts.append(AttentionPart(0, num_decode_rows, meta))
        if decodes < b.num_requests:
            kv_len_B, q = rows.kv_len_B[decodes:], b.max_chunk + more
            meta = AttentionMetadata.ragged(chunk_cu_q_B1, kv_len_B, table_BP[decodes:], max_q=q, max_kv=b.max_kv)
            parts.append(AttentionPart(num_decode_rows, num_rows - num_decode_rows, meta))
        source_N = torch.zeros(num_rows, dtype=torch.int64, device=device)
        layout = _Layout(more, rows, source_N, cu_q_B1, chunk_cu_q_B1, ForwardBatch.over(rows, *parts))
        layout.place(b)
        return layout

    def place(self, b: StepBatch) -> None:
        """First rows of the requests; those of a captured mixed step change."""
        behind_B1 = torch.arange(0, b.num_requests + 1, dtype=torch.int32, device=self.cu_q_B1.device) * self.more
        torch.add(b.cu_q_B1, behind_B1, out=self.cu_q_B1)
        first = self.cu_q_B1[b.num_decodes :]
        torch.sub(first, first[:1], out=self.chunk_cu_q_B1)


class OnePassDrafter(Chain):
    """K drafts per round from one pass of a head, bound to one engine's buffers."""

    model: DraftHead

    def __init__(self, head: DraftHead, num_drafts: int, resources: EngineResources):
        super().__init__(head, num_drafts, 1, resources)
        assert head.placeholder is not None, "a head of another kind is refused where it is loaded"
        self.features = head.features
        self._cache = self._caches[0]
        self._placeholder = head.placeholder
        self._unknown_1H = head.project(head.placeholder.features_1F)

    def first_rows(self, num_drafts: int) -> int:
        return num_drafts + max(num_drafts, 1)

    def phases(self, batch: StepBatch) -> list[Phase]:
        layout = _Layout.of(batch)
        run, plan = partial(self._draft, layout), partial(self._plan_draft, layout)
        return [attention_phase("draft_first", self._attention, run, plan)]

    def _plan_draft(self, layout: _Layout, b: StepBatch, host: HostView) -> None:
        q_lens = tuple(q + layout.more for q in b.q_lens)
        self._plan(layout.forward, host, host.kv_lens(q_lens), q_lens)

    def _draft(self, layout: _Layout, b: StepBatch) -> None:
        features_TF, num_requests = b.work.features_TF, b.num_requests
        assert features_TF is not None
        b.work.num_draft_rows = len(layout.source_N)
        if b.advance_B is not None:
            layout.place(b)
        token_id = self._placeholder.token_id
        self._update.draft_one_pass_rows(
            layout.rows, layout.source_N, b.rows, b.cu_q_B1, b.outcome, self._state, token_id
        )
        states_TH = torch.cat([self.model.project(features_TF), self._unknown_1H])
        hidden_NH = states_TH.index_select(0, layout.source_N)
        # All drafts in one matrix product, the first drafts of all requests first.
        first_B = b.outcome.sample_row_B + torch.arange(num_requests, device=hidden_NH.device) * layout.more
        behind_K1 = torch.arange(layout.more + 1, device=hidden_NH.device).unsqueeze(1)
        row_R = (first_B + behind_K1).flatten()
        run = b.runners.first
        output_RH = run(self.model, layout.forward, self._attention, self._cache, hidden_NH, wanted_R=row_R)
        logits_RV, _ = self.model.logits_and_state(output_RH)
        if not b.num_drafts:  # the pass has only kept the head's cache up to date
            return self._store_none(b)
        for step, logits_BV in enumerate(logits_RV.split(num_requests), 1):
            self._store(step, b, logits_BV, self.model.d2t)
