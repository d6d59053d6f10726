"""EAGLE-1 heads (Li et al. 2024, arXiv 2401.15077) in the published checkpoint format; EAGLE-2 uses the same files.

Shapes: T rows, H hidden size (the target's), Vd draft vocabulary.
Layer and conventions as in SafeAILab/EAGLE cnets1.py: `fc` takes the embedding of token p+1 and the target's
final-normed state of token p, embedding first; its output goes into attention un-normed and is the residual; there is
no final norm, and the target's `lm_head` reads the layer's output.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.harness.engines.native.models.eagle_head import EagleHead
from specbench.harness.engines.native.models.features import Features
from specbench.harness.engines.native.models.forward import Pieces


class Eagle1Head(EagleHead):
    """`fc` is [H, 2H], with or without bias; embedding and usually lm_head are the target's."""

    features = Features.FINAL

    def project(self, features_TH: Tensor) -> Tensor:
        """The target's final-normed states are used as hidden states of the head without change."""
        return features_TH

    def pieces(self, ids_T: Tensor, hidden_TH: Tensor, wanted_R: Tensor | None = None) -> Pieces:
        """Row p takes the hidden state of position p and the embedding of token p+1 (`ids_T`). Returns [T, H], or
        `wanted_R` of these rows."""
        w = self.weights
        residual = w.fc(torch.cat([w.embed_group.embed(ids_T, w.embed_VH), hidden_TH], dim=-1))
        attn = yield 0, w.qkv(residual)
        return self._after_attention(attn, residual, wanted_R)

    def logits_and_state(self, output_RH: Tensor) -> tuple[Tensor, Tensor]:
        """Draft logits [R, Vd] and the state [R, H] that the next draft step takes as its hidden."""
        return self.weights.lm_head(output_RH), output_RH
