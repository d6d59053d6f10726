"""What the head learns from: the target's features, and its next-token distributions over the draft vocabulary.

The target does not change, so its states of a batch are kept after the first epoch as long as the GPU has memory: for a
target of 1.5 billion parameters its forward pass is two thirds of a training step.

Legend: N = B * T flat rows, H hidden, F = 3H, V vocabulary, Vd draft vocabulary, Q rows whose distribution is learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .batches import Batch
from .frozen_target import FrozenTarget

_LOGIT_ROWS = 8192  # logits exist in fp32, or over the full vocabulary, for this many rows at a time
_FREE_SHARE = 0.15  # of the GPU's memory: never taken by kept states


@dataclass(frozen=True, slots=True)
class TrainingTargets:
    """The training targets of one batch."""

    features_NF: Tensor
    logits_QV: Tensor  # [Q, Vd], in the target's dtype
    lse_Q: Tensor  # fp32, logsumexp over the draft vocabulary
    best_Q: Tensor  # int64, draft id of the target's own choice; -1 where the draft vocabulary lacks it


@dataclass(frozen=True, slots=True)
class _States:
    features_NF: Tensor
    hidden_QH: Tensor
    best_Q: Tensor


def gpu_has_room(device: torch.device) -> Callable[[], bool]:
    """Whether states may be kept: on a GPU while a share of its memory is free, never in main memory."""

    def has_room() -> bool:
        free, total = torch.cuda.mem_get_info(device)
        return free > _FREE_SHARE * total

    return has_room if device.type == "cuda" else lambda: False


class TargetSource:
    """Training targets by the batch's number.

    `lm_head_VdH`: the target's output rows of the draft vocabulary. `draft_id_V`: draft id of each target id, -1 if it
    has none. `has_room` is asked before a batch's states are kept.
    """

    def __init__(self, frozen: FrozenTarget, lm_head_VdH: Tensor, draft_id_V: Tensor, has_room: Callable[[], bool]):
        self._frozen = frozen
        self._lm_head_VdH = lm_head_VdH
        self._draft_id_V = draft_id_V.to(frozen.target.device)
        self._has_room = has_room
        self._kept: dict[int, _States] = {}

    @torch.no_grad()
    def targets(self, number: int, batch: Batch) -> TrainingTargets:
        states = self._kept.get(number)
        if states is None:
            states = self._states(batch)
            if self._has_room():
                self._kept[number] = states
        logits_QV = F.linear(states.hidden_QH, self._lm_head_VdH)
        lse_Q = torch.cat([rows.float().logsumexp(-1) for rows in logits_QV.split(_LOGIT_ROWS)])
        return TrainingTargets(states.features_NF, logits_QV, lse_Q, states.best_Q)

    def _states(self, batch: Batch) -> _States:
        hidden_NH, features_NF = self._frozen.states(batch.ids_BT)
        hidden_QH = hidden_NH.index_select(0, batch.target_row_Q)
        choices = [self._frozen.target.logits(rows).argmax(-1) for rows in hidden_QH.split(_LOGIT_ROWS)]
        return _States(features_NF, hidden_QH, self._draft_id_V[torch.cat(choices)])
