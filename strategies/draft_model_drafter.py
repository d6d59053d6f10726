"""Drafting with a model of its own: two rows a request in the first pass, then one row a request for each draft.

The draft model's key at index p is made from token p itself, at rotary position p. After a round its keys up to n' - 2
are right, n' being the tokens with target KV: it ran the tokens that it drafted except the last one. Tokens n' - 1 and
n' (the pending one) are therefore what the first pass runs; after anything but full acceptance the first of them is run
again. vLLM's draft_model.py instead repeats all rows of the verification and one more.
A mixed step first runs the rows that the target ran, which is how prompts get their keys.
Legend: B requests, H hidden size of the draft model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specbench.harness.engine.batch import StepBatch
from specbench.harness.engine.host_view import HostView
from specbench.harness.engine.planning import plan_rows
from specbench.harness.engine.strategy import EngineResources, Phase
from specbench.harness.models.features import Features
from specbench.harness.models.llama import AttentionPart, ForwardBatch, LlamaModel
from specbench.kernels.attention.base import AttentionMetadata, PlannedAttentionBackend


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Persistent inputs of one layout's first pass."""

    forward: ForwardBatch
    meta: AttentionMetadata
    pending_row_B: Tensor  # int64: the second row of each request

    @staticmethod
    def of(batch: StepBatch, max_kv: int) -> _Pairs:
        num, device = batch.num_requests, batch.slot_B.device
        meta = AttentionMetadata(
            cu_q_B1=torch.arange(num + 1, dtype=torch.int32, device=device) * 2,
            kv_len_B=torch.full((num,), 2, dtype=torch.int32, device=device),
            block_table_BP=batch.block_table_BP,
            max_q=2,
            max_kv=max_kv,
            uniform=True,
        )
        ids_T, position_T, kv_slot_T = (torch.zeros(2 * num, dtype=torch.int64, device=device) for _ in range(3))
        forward = ForwardBatch(ids_T, position_T, kv_slot_T, (AttentionPart(0, 2 * num, meta),))
        return _Pairs(forward, meta, torch.arange(num, dtype=torch.int64, device=device) * 2 + 1)


class DraftModelDrafter:
    """K greedy drafts a round from a model with KV caches of its own, bound to one engine's buffers."""

    features = Features.NONE

    def __init__(self, model: LlamaModel, num_drafts: int, resources: EngineResources):
        self.num_drafts = num_drafts
        self._model = model
        self._state = resources.state
        self._update = resources.update
        self._attention = resources.new_attention(model)
        c = model.config
        self._caches = [resources.new_kv_cache(c.num_kv_heads, c.head_dim) for _ in model.layers]

    @property
    def bounded_parts(self) -> frozenset[str]:
        return frozenset({"later"} if self.num_drafts > 1 else ())

    def phases(self, batch: StepBatch) -> list[Phase]:
        # A mixed layout bounds the lengths before drafting, which reaches beyond them.
        pairs = _Pairs.of(batch, min(batch.max_kv + batch.decode_q, self._state.max_kv))
        batch.work.num_draft_rows = 2 * batch.num_requests + (batch.num_rows if _is_mixed(batch) else 0)
        planned = self._attention.backend.is_planned
        first = Phase(
            "draft_first", partial(self._draft_first, pairs), partial(self._plan_first, pairs) if planned else None
        )
        later = [
            Phase("draft_next", partial(self._draft_next, step), partial(self._plan_next, step) if planned else None)
            for step in range(2, self.num_drafts + 1)
        ]
        return [first, *later]

    def _draft_first(self, pairs: _Pairs, b: StepBatch) -> None:
        s, forward = self._state, pairs.forward
        if _is_mixed(b):
            b.runners.first(self._model, b.drafter_forward(), self._attention, self._caches)
        self._update.draft_pair_rows(
            b.slot_B,
            s.n_S,
            s.tokens_SL,
            s.block_table_SP,
            s.page_size,
            forward.ids_T,
            forward.position_T,
            forward.kv_slot_T,
            pairs.meta.kv_len_B,
        )
        hidden_TH = b.runners.first(self._model, forward, self._attention, self._caches)
        self._store(1, b, hidden_TH.index_select(0, pairs.pending_row_B))

    def _draft_next(self, step: int, b: StepBatch) -> None:
        s = self._state
        self._update.draft_next_rows(
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
            shift=1,
        )
        self._store(step, b, b.runners.later(self._model, b.draft_step_forward(step), self._attention, self._caches))

    def _store(self, step: int, b: StepBatch, hidden_BH: Tensor) -> None:
        self._update.store_draft(self._model.logits(hidden_BH), None, b.slot_B, step, self._state.drafts_SK)

    def _plan_first(self, pairs: _Pairs, b: StepBatch, host: HostView) -> None:
        if _is_mixed(b):
            plan_rows(b, host, self._attention, self._caches[0], of_target=False)
        self._plan(pairs.meta, host, [max(n, 1) + 1 for _, n in host.accepted()], 2)

    def _plan_next(self, step: int, b: StepBatch, host: HostView) -> None:
        (part,) = b.draft_step_forward(step).parts
        self._plan(part.meta, host, [n + step for _, n in host.accepted()], 1)

    def _plan(self, meta: AttentionMetadata, host: HostView, kv_len: list[int], rows: int) -> None:
        backend: PlannedAttentionBackend = self._attention.backend  # type: ignore[assignment]
        lengths = host.lengths(kv_len, [rows] * len(kv_len))
        backend.plan(meta, lengths, self._attention.geometry(self._caches[0]))


def _is_mixed(batch: StepBatch) -> bool:
    """Whether the step brings prompt chunks, whose keys the draft model has not seen."""
    return batch.num_decodes < batch.num_requests
