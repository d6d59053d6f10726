"""The single lossless sampler of all strategies, greedy and sampled.

Each verify row emits argmax(log p + Gumbel noise), with the noise keyed by (request seed, output position). The token
at a position therefore does not depend on the strategy, the batch or the round that produced it, and a deterministic
draft is accepted exactly if it equals that token (the standard coupling; the residual distribution follows by itself).

Legend: R logit rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from specbench.harness.engines.native.core.edit_buffers import Edit, edits_of
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.spec.sampling import SamplingParams
from specbench.kernels.sample import filter_top_k_top_p, sample


class SamplingMode(Enum):
    """The most general sampling mode of a batch's requests; part of the key under which a graph is captured."""

    GREEDY = "greedy"
    SAMPLED = "sampled"
    FILTERED = "filtered"  # top-k or top-p somewhere in the batch

    @property
    def drawing(self) -> SamplingMode:
        return self

    @property
    def edits(self) -> frozenset[Edit]:
        return frozenset()

    @staticmethod
    def of(requests: list[SamplingParams]) -> Mode:
        drawing = SamplingMode.GREEDY
        if any(s.temperature > 0 and (s.top_k > 0 or s.top_p < 1) for s in requests):
            drawing = SamplingMode.FILTERED
        elif any(s.temperature > 0 for s in requests):
            drawing = SamplingMode.SAMPLED
        edits = edits_of(requests)
        return EditedMode(drawing, edits) if edits else drawing


@dataclass(frozen=True, slots=True)
class EditedMode:
    """The same, if logits are edited first."""

    drawing: SamplingMode
    edits: frozenset[Edit]


Mode = SamplingMode | EditedMode


def sample_rows(logits_RV: Tensor, slot_R: Tensor, position_R: Tensor, state: RoundState, mode: SamplingMode) -> Tensor:
    """Token ids [R] int64. `position_R` is the position of the token that each row predicts."""
    if mode is SamplingMode.GREEDY:
        return sample(logits_RV, state.temperature_S, state.seed_S, position_R, all_greedy=True)
    temperature_R = state.temperature_S.index_select(0, slot_R)
    logits_RV = filtered(logits_RV, slot_R, temperature_R, state, mode)
    seed_R = state.seed_S.index_select(0, slot_R)
    return sample(logits_RV, temperature_R, seed_R, position_R.to(torch.int64), all_greedy=False)


def filtered(logits_RV: Tensor, slot_R: Tensor, temperature_R: Tensor, state: RoundState, mode: SamplingMode) -> Tensor:
    """The logits or, if the batch needs it, a copy without the tokens that top-k and top-p exclude."""
    if mode is not SamplingMode.FILTERED:
        return logits_RV
    top_k_R = state.top_k_S.index_select(0, slot_R)
    top_p_R = state.top_p_S.index_select(0, slot_R)
    return filter_top_k_top_p(logits_RV, temperature_R, top_k_R, top_p_R)
