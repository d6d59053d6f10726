"""The phases of one step: prepare rows, verify, accept, then the drafter's.

A round is a list of phases over persistent device buffers; a graph plan (graphs.py) says which neighbouring phases are
captured together. The same phases run a mixed step, on a ragged layout and without graphs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.harness.models.llama import Attention, KVCache, LlamaModel
from specbench.kernels.accept_chain import accept_chain
from specbench.kernels.decode_rows import prepare_rows

from .batch import StepBatch
from .sampler import SamplingMode, sample_rows
from .state import RoundState
from .strategy import Drafter, Phase


class RoundBuilder:
    """Makes the phases of a step for any layout. Owns nothing; the engine owns what it is given."""

    def __init__(
        self,
        target: LlamaModel,
        attention: Attention,
        caches: list[KVCache],
        state: RoundState,
        drafter: Drafter | None,
        forced_SL: Tensor | None,
    ):
        self.target = target
        self.attention = attention
        self.caches = caches
        self.state = state
        self.drafter = drafter
        self.forced_SL = forced_SL  # synthetic acceptance: accepted drafts by slot and position of the pending token

    def phases(self, batch: StepBatch, mode: SamplingMode) -> list[Phase]:
        phases = [
            Phase("advance", self._advance),
            Phase("verify", self._verify),
            Phase("accept", lambda b: self._accept(b, mode)),
        ]
        return phases + (self.drafter.phases(batch) if self.drafter else [])

    def _advance(self, b: StepBatch) -> None:
        """State to rows: ids, positions, KV slots, lengths and block tables of the target's pass."""
        s = self.state
        prepare_rows(
            b.slot_B,
            b.row_req_T,
            b.row_off_T,
            b.num_drafts_B,
            b.q_len_B,
            s.n_S,
            s.tokens_SL,
            s.drafts_SK,
            s.block_table_SP,
            s.page_size,
            b.ids_T,
            b.position_T,
            b.kv_slot_T,
            b.kv_len_B,
            b.block_table_BP,
        )

    def _verify(self, b: StepBatch) -> None:
        features_TF = None
        if self.drafter is not None and self.drafter.needs_features:
            size = 3 * self.target.config.hidden_size
            features_TF = torch.empty(b.num_rows, size, dtype=self.target.dtype, device=self.state.device)
        b.work.features_TF = features_TF
        b.work.hidden_TH = self.target.forward(b.target_forward(), self.attention, self.caches, features_TF)

    def _accept(self, b: StepBatch, mode: SamplingMode) -> None:
        s, hidden_TH = self.state, b.work.hidden_TH
        assert hidden_TH is not None
        position_R, request_R = b.position_T, b.row_req_T
        if b.logit_row_R is not None:  # mixed: only rows whose prediction counts
            hidden_TH = hidden_TH.index_select(0, b.logit_row_R)
            position_R = position_R.index_select(0, b.logit_row_R)
            request_R = request_R.index_select(0, b.logit_row_R)
        logits_RV = self.target.logits(hidden_TH)
        slot_R = b.slot_B.index_select(0, request_R) if mode is not SamplingMode.GREEDY else b.slot_B
        sampled_R = sample_rows(logits_RV, slot_R, position_R + 1, s, mode)
        if b.advance_B is not None:
            s.n_S.index_add_(0, b.slot_B, b.advance_B)
        forced_B = None
        if self.forced_SL is not None:
            n_B = s.n_S.index_select(0, b.slot_B).to(torch.int64)
            forced_B = self.forced_SL[b.slot_B, n_B]
        accept_chain(
            sampled_R.view(b.num_requests, -1),
            b.slot_B,
            b.num_drafts_B,
            b.base_row_B,
            forced_B,
            s.n_S,
            s.tokens_SL,
            s.limit_S,
            s.stop_SE,
            s.done_S,
            s.drafts_SK,
            b.status_BX,
            b.sample_row_B,
        )
