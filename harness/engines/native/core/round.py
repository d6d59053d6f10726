"""The phases of one step: prepare rows, verify, accept, then the drafter's.

A round is a list of phases over persistent device buffers; a graph plan (plans.py) says which neighbouring phases are
captured together. The same phases run a mixed step, on a ragged layout.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.edit_buffers import Edit
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.logit_edits import edit_logits
from specbench.harness.engines.native.core.logprobs import NUM_COLUMNS, keep_logprobs
from specbench.harness.engines.native.core.multi_sync import MultiSync
from specbench.harness.engines.native.core.planning import attention_phase, plan_pass
from specbench.harness.engines.native.core.sampled_drafts import SampledDrafts
from specbench.harness.engines.native.core.sampler import Mode, SamplingMode, sample_rows
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.strategy import Drafter, Phase
from specbench.harness.engines.native.core.target_cache import TargetCache
from specbench.harness.engines.native.models.features import Features
from specbench.harness.engines.native.models.forward import Attention
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.kernels.compact_kv import compact_kv
from specbench.kernels.state_update import StateUpdate


@dataclass(kw_only=True)
class RoundBuilder:
    """Makes the phases of a step for any layout. Owns nothing: the engine owns all objects passed in."""

    target: LlamaModel
    attention: Attention
    cache: TargetCache
    state: RoundState
    update: StateUpdate
    drafter: Drafter | None
    forced_SL: Tensor | None  # synthetic acceptance: accepted drafts by slot and position of the pending token
    multi_sync: MultiSync | None
    sampled: SampledDrafts | None = None  # where the strategy draws its drafts

    def phases(self, batch: StepBatch, mode: Mode) -> list[Phase]:
        batch.mode = mode
        if (sampled := self._drawn(mode)) is not None:
            sampled.make_room()
        self.state.edits.make_room(mode.edits, self.target.config.vocab_size)  # before a graph holds their addresses
        if Edit.LOGPROBS in mode.edits and batch.outcome.logprobs_BWN is None:
            shape = (batch.num_requests, batch.most_emitted, NUM_COLUMNS)
            batch.outcome.logprobs_BWN = torch.zeros(shape, device=self.state.device)
        phases = [
            Phase("advance", self._advance),
            attention_phase("verify", self.attention, self._verify, self._plan),
            Phase("accept", lambda b: self._accept(b, mode)),
        ]
        if self.state.tree is not None:
            phases.append(Phase("compact", self._compact))
        drafting = self.drafter.phases(batch) if self.drafter else []
        return [*phases, *drafting] if self.multi_sync is None else self.multi_sync.phases(phases, drafting)

    def _drawn(self, mode: Mode) -> SampledDrafts | None:
        """The distributions of drafts that are drawn, if any are."""
        return self.sampled if self.sampled is not None and self.sampled.draws(mode) else None

    def _advance(self, b: StepBatch) -> None:
        """From state to rows: ids, positions, KV slots, lengths and block tables of the target's pass."""
        prepare = self.update.prepare_rows if self.state.tree is None else self.update.prepare_tree_rows
        prepare(b.rows, self.state)

    def _plan(self, b: StepBatch, host: HostView) -> None:
        plan_pass(b.target_forward(), host, self.attention, self.cache.layers[0], host.kv_lens(b.q_lens), b.q_lens)

    def _verify(self, b: StepBatch) -> None:
        kind = self.drafter.features if self.drafter is not None else Features.NONE
        if kind is Features.AUX and b.work.features_TF is None:
            size = len(self.target.aux_layers) * self.target.config.hidden_size
            b.work.features_TF = torch.empty(b.num_rows, size, dtype=self.target.dtype, device=self.state.device)
        features_TF = b.work.features_TF if kind is Features.AUX else None
        hidden_TH = b.runners.target(
            self.target, b.target_forward(), self.attention, self.cache.layers, features_TF=features_TF
        )
        b.work.hidden_TH = hidden_TH
        if kind is Features.FINAL:
            if b.work.features_TF is None:
                b.work.features_TF = torch.empty_like(hidden_TH)
            b.work.features_TF.copy_(hidden_TH)

    def _accept(self, b: StepBatch, mode: Mode) -> None:
        s, rows, hidden_TH, spread_R = self.state, b.rows, b.work.hidden_TH, b.spread_R
        assert hidden_TH is not None
        position_R, request_R = rows.position_T, rows.row_req_T
        # In a mixed step only rows whose prediction counts have logits: what is called R is N until it is spread.
        if b.logit_row_N is not None:
            hidden_TH, position_R, request_R = _rows((hidden_TH, position_R, request_R), b.logit_row_N)
        raw_RV, sampled = self.target.logits(hidden_TH), self._drawn(mode)
        if spread_R is not None and (mode.edits or sampled is not None):
            # These take as many rows of each request; plain sampling takes each row once.
            raw_RV, position_R, request_R = _rows((raw_RV, position_R, request_R), spread_R)
            spread_R = None
        logits_RV = raw_RV
        if mode.edits:
            logits_RV = edit_logits(raw_RV, rows, position_R + 1, s, mode.edits)
        slot_R = rows.slot_B.index_select(0, request_R) if mode.drawing is not SamplingMode.GREEDY else rows.slot_B
        if sampled is not None:
            sampled_R = sampled.tokens(logits_RV, rows, slot_R, position_R + 1, mode)
        else:
            sampled_R = sample_rows(logits_RV, slot_R, position_R + 1, s, mode.drawing)
        if spread_R is not None:
            sampled_R = sampled_R.index_select(0, spread_R)
        if b.advance_B is not None:
            s.n_S.index_add_(0, rows.slot_B, b.advance_B)
        forced_B = None
        if self.forced_SL is not None:
            n_B = s.n_S.index_select(0, rows.slot_B).to(torch.int64)
            forced_B = self.forced_SL[rows.slot_B, n_B]
        accept = self.update.accept_chain if s.tree is None else self.update.accept_tree
        accept(sampled_R.view(b.num_requests, -1), rows, s, b.outcome, forced_B)
        if b.outcome.logprobs_BWN is not None:
            keep_logprobs(raw_RV, sampled_R, b.outcome.path_BW, b.outcome.logprobs_BWN)

    def _compact(self, b: StepBatch) -> None:
        """Moves keys and values of the accepted path to where a chain would have put them."""
        path_BW, status_BX = b.outcome.path_BW, b.outcome.status_BX
        assert path_BW is not None
        compact_kv(self.cache.k_LPNHD, self.cache.v_LPNHD, path_BW, status_BX, b.rows.block_table_BP)


def _rows(tensors: tuple[Tensor, ...], index_R: Tensor) -> list[Tensor]:
    return [tensor.index_select(0, index_R) for tensor in tensors]
