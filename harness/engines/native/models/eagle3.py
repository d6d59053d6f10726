"""EAGLE-3 heads (Li et al. 2025, arXiv 2503.01840) in the published checkpoint format.

Shapes: T rows, H the head's hidden size, F = 3 * target hidden (or another number of aux layers), Vd draft vocabulary.
Layer and conventions as in SafeAILab/EAGLE cnets.py and vLLM's llama_eagle3.py: the attention input is the
concatenation of the normed embedding and the normed hidden state; the state fed back is the layer's output before the
final norm (after it with `norm_output`, EAGLE-3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.eagle_head import EagleHead, HeadWeights, Placeholder
from specbench.harness.engines.native.models.features import Features
from specbench.harness.engines.native.models.forward import Pieces
from specbench.kernels.rms_norm import rms_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class Eagle3Options:
    """Variants that published heads use; the defaults are the original EAGLE-3."""

    norm_before_residual: bool = False  # residual is the normed hidden state
    norm_output: bool = False  # the fed-back state is the final-normed one (EAGLE-3.1)


@dataclass(slots=True, kw_only=True)
class Eagle3Weights(HeadWeights):
    """`fc` is [H, F], `qkv` has 2H inputs."""

    fc_norms: tuple[Tensor, ...]  # empty, one over F (`input_norm`), or one for each chunk (`fc_norm.i`)
    embed_norm_H: Tensor
    hidden_norm_H: Tensor
    norm_H: Tensor


class Eagle3Head(EagleHead):
    features = Features.AUX
    weights: Eagle3Weights

    def __init__(
        self,
        config: ModelConfig,
        weights: Eagle3Weights,
        options: Eagle3Options,
        aux_layers: tuple[int, ...],
        placeholder: Placeholder | None = None,
    ):
        super().__init__(config, weights)
        self.options = options
        self.placeholder = placeholder
        self.aux_layers = aux_layers  # layers of the target: the states entering them are its features

    @property
    def feature_size(self) -> int:
        return self.weights.fc.in_features

    def project(self, features_TF: Tensor) -> Tensor:
        """Target features [T, F] to the head's hidden state [T, H]: `fc`, applied to target features only."""
        norms = self.weights.fc_norms
        eps = self.config.rms_norm_eps
        if len(norms) == 1:
            features_TF = rms_norm(features_TF, norms[0], eps)
        elif norms:
            chunks = features_TF.chunk(len(norms), dim=-1)
            normed = [rms_norm(x.contiguous(), w, eps) for x, w in zip(chunks, norms, strict=True)]
            features_TF = torch.cat(normed, dim=-1)
        return self.weights.fc(features_TF)

    def pieces(self, ids_T: Tensor, hidden_TH: Tensor, wanted_R: Tensor | None = None) -> Pieces:
        """Row p takes the hidden state of position p and the embedding of token p+1 (`ids_T`).

        Returns the layer's output [T, H] before the final norm, of `wanted_R` if given. `hidden_TH` may be overwritten
        (it holds the residual).
        """
        w, eps, h = self.weights, self.config.rms_norm_eps, self.config.hidden_size
        x_T2H = torch.empty(hidden_TH.shape[0], 2 * h, dtype=hidden_TH.dtype, device=hidden_TH.device)
        rms_norm(w.embed_group.embed(ids_T, w.embed_VH), w.embed_norm_H, eps, out=x_T2H[:, :h])
        rms_norm(hidden_TH, w.hidden_norm_H, eps, out=x_T2H[:, h:])
        residual = x_T2H[:, h:].clone() if self.options.norm_before_residual else hidden_TH
        attn = yield 0, w.qkv(x_T2H)
        return self._after_attention(attn, residual, wanted_R)

    def logits_and_state(self, output_RH: Tensor) -> tuple[Tensor, Tensor]:
        """Draft logits [R, Vd] and the state [R, H] that the next draft step takes as its hidden."""
        normed = rms_norm(output_RH, self.weights.norm_H, self.config.rms_norm_eps)
        return self.weights.lm_head(normed), normed if self.options.norm_output else output_RH
