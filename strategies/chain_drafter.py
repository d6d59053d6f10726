"""The chain drafter of EAGLE heads: one pass over the verified rows, then one row a request for each further draft.

Legend: T rows of the step, B requests. Dataflow as in vLLM's llm_base_proposer. With a padded batch (PR 24539) rejected
rows are computed too and overwritten later, so that a decode round's shapes never depend on how much was accepted;
unpadded, the host reads the accepted counts first and launches exactly those rows.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.planning import plan_pass
from specbench.harness.engines.native.core.strategy import DraftHead, EngineResources, Phase
from specbench.harness.engines.native.models.features import Features

from .draft_layout import UnpaddedRows, unpadded_rows


class ChainDrafter:
    """K drafts a round from an EAGLE head, bound to one engine's buffers."""

    def __init__(self, head: DraftHead, num_drafts: int, resources: EngineResources):
        self.num_drafts = num_drafts
        self._head = head
        self._state = resources.state
        self._update = resources.update
        self._sizes = resources.sizes
        self._is_unpadded = resources.drafter_rows == "unpadded"
        self._attention = resources.new_attention(head)
        self._cache = resources.new_kv_cache(head.config.num_kv_heads, head.config.head_dim)

    @property
    def model(self) -> DraftHead:
        return self._head

    @property
    def features(self) -> Features:
        return self._head.features

    @property
    def bounded_parts(self) -> frozenset[str]:
        return frozenset({"first", "later"} if self.num_drafts > 1 else {"first"})

    def phases(self, batch: StepBatch) -> list[Phase]:
        planned = self._attention.is_planned
        first = _UnpaddedFirst(self) if self._is_unpadded else None
        phases = [
            Phase("draft_first", first.run, first.prepare)
            if first
            else Phase("draft_first", self._draft_first, self._plan_first if planned else None)
        ]
        for step in range(2, self.num_drafts + 1):
            plan = partial(self._plan_next, step) if planned else None
            phases.append(Phase("draft_next", partial(self._draft_next, step), plan))
        return phases

    # -- first pass --------------------------------------------------------------------------------------------------

    def _plan_first(self, b: StepBatch, host: HostView) -> None:
        plan_pass(b.drafter_forward(), host, self._attention, self._cache, host.kv_lens(b.q_lens), b.q_lens)

    def _draft_first(self, b: StepBatch) -> None:
        """Rows of the verify pass again: true features of position p with the token of p+1; one draft a request."""
        assert b.work.features_TF is not None
        b.work.num_draft_rows = b.num_rows
        rows = b.rows
        self._update.draft_first_ids(rows.slot_B, rows.row_req_T, rows.position_T, self._state.tokens_SL, rows.ids_T)
        hidden_TH = self._head.project(b.work.features_TF)
        output_TH = b.runners.first(self._head, b.drafter_forward(), self._attention, self._cache, hidden_TH)
        self._finish_first(b, output_TH, b.outcome.sample_row_B)

    def _first_unpadded(self, b: StepBatch, rows: UnpaddedRows) -> None:
        assert b.work.features_TF is not None
        forward = rows.forward
        b.work.num_draft_rows = forward.ids_T.shape[0]
        self._update.draft_first_ids(
            b.rows.slot_B, rows.row_req_R, forward.position_T, self._state.tokens_SL, forward.ids_T
        )
        hidden_RH = self._head.project(b.work.features_TF.index_select(0, rows.gather_R))
        output_RH = b.runners.first(self._head, forward, self._attention, self._cache, hidden_RH)
        self._finish_first(b, output_RH, rows.sample_row_B)

    def _finish_first(self, b: StepBatch, output_TH: Tensor, sample_row_B: Tensor) -> None:
        # Into a tensor that stays where it is: the later passes may be a graph where this pass is none.
        if b.work.draft_state_BH is None:
            b.work.draft_state_BH = output_TH.new_empty(b.num_requests, output_TH.shape[1])
        state_BH = b.work.draft_state_BH
        torch.index_select(output_TH, 0, sample_row_B, out=state_BH)
        next_BH = self._store(1, b, state_BH)
        if next_BH is not state_BH:
            state_BH.copy_(next_BH)
        b.work.next_state_BH = state_BH

    # -- later passes ------------------------------------------------------------------------------------------------

    def _plan_next(self, step: int, b: StepBatch, host: HostView) -> None:
        kv_lens = [n + step - 1 for _, n in host.accepted()]
        forward = b.draft_step_forward(step)
        plan_pass(forward, host, self._attention, self._cache, kv_lens, (1,) * b.num_requests)

    def _draft_next(self, step: int, b: StepBatch) -> None:
        """One row a request, fed with the head's own state."""
        self._update.draft_next_rows(b.next_rows, b.rows.slot_B, self._state, step)
        # The second draft's graph may be captured apart from the first pass: it reads where that one always writes.
        hidden_BH = b.work.draft_state_BH if step == 2 else b.work.next_state_BH
        assert hidden_BH is not None
        output_BH = b.runners.later(self._head, b.draft_step_forward(step), self._attention, self._cache, hidden_BH)
        b.work.next_state_BH = self._store(step, b, output_BH)

    def _store(self, step: int, b: StepBatch, output_BH: Tensor) -> Tensor:
        """Notes the draft; returns the state that the next pass continues from."""
        logits_BV, state_BH = self._head.logits_and_state(output_BH)
        self._update.store_draft(logits_BV, self._head.d2t, b.rows.slot_B, step, self._state.drafts_SK)
        return state_BH


class _UnpaddedFirst:
    """The first pass of one layout: its rows are known only when the host has read what was accepted."""

    def __init__(self, drafter: ChainDrafter):
        self._drafter = drafter
        self._rows: UnpaddedRows | None = None

    def prepare(self, b: StepBatch, host: HostView) -> None:
        d = self._drafter
        self._rows = unpadded_rows(b, host, d._sizes)
        if d._attention.is_planned:
            d._attention.plan(self._rows.forward.parts[0].meta, self._rows.lengths(host), d._cache)

    def run(self, b: StepBatch) -> None:
        assert self._rows is not None
        self._drafter._first_unpadded(b, self._rows)
