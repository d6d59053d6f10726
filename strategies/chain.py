"""The part shared by chain drafters: the later passes, one row per request for each draft after the first.

Legend: B requests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.planning import attention_phase, plan_pass
from specbench.harness.engines.native.core.strategy import Drafter, DraftHead, EngineResources, Phase
from specbench.harness.engines.native.models.forward import ForwardBatch
from specbench.harness.engines.native.models.llama import LlamaModel


class Chain(Drafter):
    """K drafts per round from one model, bound to one engine's buffers. Subclasses implement the passes."""

    shift = 0
    """By how many positions the later passes are ahead of EAGLE's (kernels/draft_rows.py)."""

    def __init__(self, model: DraftHead | LlamaModel, num_drafts: int, num_layers: int, resources: EngineResources):
        self.model = model
        self.num_drafts = num_drafts
        self._state = resources.state
        self._update = resources.update
        self.sampled = resources.sampled_drafts(model)
        self._attention = resources.new_attention(model)
        c = model.config
        self._caches = [resources.new_kv_cache(c.num_kv_heads, c.head_dim) for _ in range(num_layers)]

    def _later_phases(self, batch: StepBatch) -> list[Phase]:
        return [
            attention_phase(
                "draft_next", self._attention, partial(self._draft_next, step), partial(self._plan_next, step)
            )
            for step in range(2, batch.num_drafts + 1)
        ]

    def _draft_next(self, step: int, b: StepBatch) -> None:
        self._update.draft_next_rows(b.next_rows, b.rows.slot_B, self._state, step, self.shift)
        self._run_next(step, b, b.draft_step_forward(step))

    def _run_next(self, step: int, b: StepBatch, forward: ForwardBatch) -> None:
        """Runs the pass over the prepared rows and samples its draft."""
        raise NotImplementedError

    def _plan_next(self, step: int, b: StepBatch, host: HostView) -> None:
        kv_lens = [n + step - 1 + self.shift for _, n in host.accepted()]
        self._plan(b.draft_step_forward(step), host, kv_lens, (1,) * b.num_requests)

    def _plan(self, forward: ForwardBatch, host: HostView, kv_lens: Sequence[int], q_lens: Sequence[int]) -> None:
        plan_pass(forward, host, self._attention, self._caches[0], kv_lens, q_lens)

    def _store_none(self, b: StepBatch) -> None:
        """For a round without drafts, whose first pass only writes the keys."""
        self._state.drafts_SK.index_fill_(0, b.rows.slot_B, -1)

    def _store(self, step: int, b: StepBatch, logits_BV: Tensor, d2t_V: Tensor | None = None) -> None:
        drafts_SK, slot_B = self._state.drafts_SK, b.rows.slot_B
        if self.sampled is not None and self.sampled.draws(b.mode):
            self.sampled.draw(logits_BV, slot_B, step, b.mode)
        else:
            self._update.store_draft(logits_BV, d2t_V, slot_B, step, drafts_SK)
        if step == b.num_drafts < self.num_drafts:  # what an earlier round with more of them left
            drafts_SK[:, step:].index_fill_(0, slot_B, -1)
