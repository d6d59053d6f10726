"""The EAGLE-3 chain drafter over a padded batch: one pass over the verify rows, then one row a request for each draft.

Legend: T rows of the step, B requests. Dataflow as in vLLM's llm_base_proposer (padded drafter batch, PR 24539):
rejected rows are computed and overwritten later, so that a decode round's shapes never depend on how much was accepted.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from specbench.harness.engine.batch import StepBatch
from specbench.harness.engine.strategy import DraftHead, EngineResources, Phase
from specbench.kernels.draft_rows import draft_first_ids, draft_next_rows
from specbench.kernels.store_draft import store_draft


class ChainDrafter:
    """K drafts a round from an EAGLE-3 head, bound to one engine's buffers."""

    needs_features = True

    def __init__(self, head: DraftHead, num_drafts: int, resources: EngineResources):
        self.num_drafts = num_drafts
        self._head = head
        self._state = resources.state
        self._attention = resources.new_attention(head)
        self._cache = resources.new_kv_cache(head.config.num_kv_heads, head.config.head_dim)

    def phases(self, batch: StepBatch) -> list[Phase]:
        later = [Phase("draft_next", partial(self._draft_next, step)) for step in range(2, self.num_drafts + 1)]
        return [Phase("draft_first", self._draft_first), *later]

    def _draft_first(self, b: StepBatch) -> None:
        """Rows of the verify pass again: true features of position p with the token of p+1; one draft a request."""
        state = self._state
        assert b.work.features_TF is not None
        draft_first_ids(b.slot_B, b.row_req_T, b.position_T, state.tokens_SL, b.ids_T)
        hidden_TH = self._head.project(b.work.features_TF)
        output_TH = self._head.forward(b.target_forward(), hidden_TH, self._attention, self._cache)
        self._store(1, b, output_TH.index_select(0, b.sample_row_B))

    def _draft_next(self, step: int, b: StepBatch) -> None:
        """One row a request, fed with the head's own state."""
        s = self._state
        draft_next_rows(
            step,
            b.slot_B,
            s.n_S,
            s.drafts_SK,
            s.block_table_SP,
            s.page_size,
            b.next_ids_B,
            b.next_position_B,
            b.next_kv_slot_B,
            b.next_kv_len_B,
        )
        assert b.work.draft_state_BH is not None
        forward = b.draft_step_forward()
        self._store(step, b, self._head.forward(forward, b.work.draft_state_BH, self._attention, self._cache))

    def _store(self, step: int, b: StepBatch, output_BH: Tensor) -> None:
        logits_BV, b.work.draft_state_BH = self._head.logits_and_state(output_BH)
        store_draft(logits_BV, self._head.d2t, b.slot_B, step, self._state.drafts_SK)
