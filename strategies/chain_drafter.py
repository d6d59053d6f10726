"""The chain drafter of EAGLE heads: one pass over the verified rows, then one row per request for each further draft.

Legend: T rows of the step, B requests. Dataflow as in vLLM's llm_base_proposer with a padded batch (PR 24539): rejected
rows leave keys and values, too, which are overwritten later, so that a decode round's shapes do not depend on how much
was accepted. What follows attention is computed for the last accepted rows only, from which drafts come.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.planning import attention_phase
from specbench.harness.engines.native.core.strategy import DraftHead, EngineResources, Phase
from specbench.harness.engines.native.models.forward import ForwardBatch

from .chain import Chain


class ChainDrafter(Chain):
    """K drafts per round from an EAGLE head, bound to one engine's buffers."""

    model: DraftHead

    def __init__(self, head: DraftHead, num_drafts: int, resources: EngineResources):
        super().__init__(head, num_drafts, 1, resources)
        self.features = head.features
        self.bounded_parts = frozenset({"first", "later"} if num_drafts > 1 else {"first"})
        self._cache = self._caches[0]

    def phases(self, batch: StepBatch) -> list[Phase]:
        return [self._first_phase(), *self._later_phases(batch)]

    def _first_phase(self) -> Phase:
        return attention_phase("draft_first", self._attention, self._draft_first, self._plan_first)

    def _plan_first(self, b: StepBatch, host: HostView) -> None:
        self._plan(b.drafter_forward(), host, host.kv_lens(b.q_lens), b.q_lens)

    def _draft_first(self, b: StepBatch) -> None:
        """The rows of the verify pass again: true features of position p with the token of p+1; one draft per
        request."""
        self._run_first(b, b.rows.row_req_T, b.drafter_forward(), b.outcome.sample_row_B)

    def _run_first(
        self,
        b: StepBatch,
        row_req_T: Tensor,
        forward: ForwardBatch,
        sample_row_B: Tensor,
        gather_T: Tensor | None = None,
    ) -> None:
        """`row_req_T`: the request of each row; `sample_row_B`: the row that each request's draft comes from;
        `gather_T`: the verified rows whose features are taken, where they are not all of them."""
        features_TF = b.work.features_TF
        assert features_TF is not None
        b.work.num_draft_rows = forward.ids_T.shape[0]
        self._update.draft_first_ids(b.rows.slot_B, row_req_T, forward.position_T, self._state.tokens_SL, forward.ids_T)
        hidden_TH = self.model.project(features_TF if gather_T is None else features_TF.index_select(0, gather_T))
        # All rows leave keys and values; of what follows them, only the rows that drafts come from are used.
        run = b.runners.first
        output_BH = run(self.model, forward, self._attention, self._cache, hidden_TH, wanted_R=sample_row_B)
        if not b.num_drafts:
            return self._store_none(b)
        next_BH = self._store_and_continue(1, b, output_BH)
        # Into a persistent tensor, since the later passes may be a graph even if this pass is not.
        if b.work.draft_state_BH is None:
            b.work.draft_state_BH = torch.empty_like(next_BH)
        b.work.draft_state_BH.copy_(next_BH)
        b.work.next_state_BH = b.work.draft_state_BH

    def _run_next(self, step: int, b: StepBatch, forward: ForwardBatch) -> None:
        """The input is the head's own state."""
        # The second draft's graph may be captured separately from the first pass, so it reads where that pass writes.
        hidden_BH = b.work.draft_state_BH if step == 2 else b.work.next_state_BH
        assert hidden_BH is not None
        output_BH = b.runners.later(self.model, forward, self._attention, self._cache, hidden_BH)
        b.work.next_state_BH = self._store_and_continue(step, b, output_BH)

    def _store_and_continue(self, step: int, b: StepBatch, output_BH: Tensor) -> Tensor:
        """Stores the draft; returns the state from which the next pass continues."""
        logits_BV, state_BH = self.model.logits_and_state(output_BH)
        self._store(step, b, logits_BV, self.model.d2t)
        return state_BH
