"""Drafting with a separate model: two rows per request in the first pass, then one row per request for each draft.

The draft model's key at index p is made from token p itself, at rotary position p. After a round its keys up to n' - 2
are right, n' being the tokens with target KV: it ran the tokens that it drafted except the last one. The first pass
therefore runs tokens n' - 1 and n' (the pending one); unless all drafts were accepted, the first of them is run again.
vLLM's draft_model.py instead repeats all rows of the verification and one more.
A mixed step first runs the rows that the target ran, which is how prompts get their keys.
Legend: B requests, H hidden size of the draft model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.planning import attention_phase
from specbench.harness.engines.native.core.strategy import EngineResources, Phase
from specbench.harness.engines.native.models.forward import AttentionPart, ForwardBatch
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.buffers import PassRows

from .chain import Chain


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Persistent inputs of one layout's first pass."""

    rows: PassRows
    forward: ForwardBatch
    pending_row_B: Tensor  # int64: the second row of each request

    @staticmethod
    def of(batch: StepBatch, max_kv: int) -> _Pairs:
        num, device = batch.num_requests, batch.rows.slot_B.device
        rows = PassRows.new(2 * num, num, device, kv_len=2)
        cu_q_B1 = torch.arange(num + 1, dtype=torch.int32, device=device) * 2
        meta = AttentionMetadata.uniform(cu_q_B1, rows.kv_len_B, batch.rows.block_table_BP, q=2, max_kv=max_kv)
        forward = ForwardBatch.over(rows, AttentionPart(0, 2 * num, meta))
        return _Pairs(rows, forward, torch.arange(num, dtype=torch.int64, device=device) * 2 + 1)


class DraftModelDrafter(Chain):
    """K greedy drafts per round from a model with its own KV caches, bound to one engine's buffers."""

    model: LlamaModel
    shift = 1

    def __init__(self, model: LlamaModel, num_drafts: int, resources: EngineResources):
        super().__init__(model, num_drafts, len(model.layers), resources)
        self.bounded_parts = frozenset({"later"} if num_drafts > 1 else ())

    def first_rows(self, num_drafts: int) -> int:
        return 2

    def phases(self, batch: StepBatch) -> list[Phase]:
        # A mixed layout limits the lengths before drafting, which exceeds them.
        pairs = _Pairs.of(batch, min(batch.max_kv + batch.decode_q, self._state.max_kv))
        batch.work.num_draft_rows = 2 * batch.num_requests + (batch.num_rows if _is_mixed(batch) else 0)
        first, plan = partial(self._draft_first, pairs), partial(self._plan_first, pairs)
        return [attention_phase("draft_first", self._attention, first, plan), *self._later_phases(batch)]

    def _draft_first(self, pairs: _Pairs, b: StepBatch) -> None:
        if _is_mixed(b):
            b.runners.first(self.model, b.drafter_forward(), self._attention, self._caches)
        self._update.draft_pair_rows(pairs.rows, b.rows.slot_B, self._state)
        hidden_TH = b.runners.first(self.model, pairs.forward, self._attention, self._caches)
        if not b.num_drafts:
            return self._store_none(b)
        self._store(1, b, self.model.logits(hidden_TH.index_select(0, pairs.pending_row_B)))

    def _plan_first(self, pairs: _Pairs, b: StepBatch, host: HostView) -> None:
        if _is_mixed(b):
            self._plan(b.drafter_forward(), host, host.kv_lens(b.q_lens), b.q_lens)
        self._plan(pairs.forward, host, [max(n, 1) + 1 for _, n in host.accepted()], (2,) * b.num_requests)

    def _run_next(self, step: int, b: StepBatch, forward: ForwardBatch) -> None:
        hidden_BH = b.runners.later(self.model, forward, self._attention, self._caches)
        self._store(step, b, self.model.logits(hidden_BH))


def _is_mixed(batch: StepBatch) -> bool:
    """Whether the step brings prompt chunks, whose keys the draft model has not seen."""
    return batch.num_decodes < batch.num_requests
