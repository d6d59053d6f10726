"""Cross-entropy between the target's distribution and the head's, fused with the head's last product.

The gradient of a soft cross-entropy depends only on the logits: softmax minus target. The forward pass therefore
computes it chunk by chunk and keeps gradients of the inputs, never the logits (as in Liger-Kernel's fused linear
cross-entropy, arXiv 2410.10989).

Legend: R rows with a loss, H hidden, V draft vocabulary, Q rows of the targets.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from .training_targets import TrainingTargets

_CHUNK_ROWS = 32_768

RowGrads = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def row_grads(
    logits_RV: Tensor, target_QV: Tensor, lse_Q: Tensor, best_Q: Tensor, place_R: Tensor, weight_R: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient [R, V] of the weighted loss with respect to the logits, cross-entropy [R], and whether the choices agree
    [R].

    Rows whose target choice is outside the draft vocabulary have weight 0: no draft could be accepted there.
    """
    x = logits_RV.float()
    best_R = best_Q[place_R]
    known_R = best_R >= 0
    p = (target_QV[place_R].float() - lse_Q[place_R].unsqueeze(1)).exp()
    lse_R1 = x.logsumexp(-1, keepdim=True)
    ce_R = (lse_R1.squeeze(1) - (p * x).sum(-1)) * known_R
    grad_RV = ((x - lse_R1).exp() - p) * (weight_R * known_R).unsqueeze(1)
    return grad_RV.to(logits_RV.dtype), ce_R, x.argmax(-1) == best_R


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor, Tensor]


class _SoftLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        hidden_RH: Tensor,
        lm_head_VH: Tensor,
        targets: TrainingTargets,
        place_R: Tensor,
        weight_R: Tensor,
        rows: RowGrads,
    ) -> tuple[Tensor, Tensor, Tensor]:
        weight_VH = lm_head_VH.to(hidden_RH.dtype)
        grad_hidden_RH = torch.empty_like(hidden_RH)
        grad_weight_VH = torch.zeros_like(lm_head_VH)
        ces, hits = [], []
        for first in range(0, len(hidden_RH), _CHUNK_ROWS):
            part = slice(first, first + _CHUNK_ROWS)
            x, place, weight = hidden_RH[part], place_R[part], weight_R[part]
            logits_RV = F.linear(x, weight_VH)
            grad_RV, ce, hit = rows(logits_RV, targets.logits_QV, targets.lse_Q, targets.best_Q, place, weight)
            torch.mm(grad_RV, weight_VH, out=grad_hidden_RH[part])
            grad_weight_VH += grad_RV.t() @ x
            ces.append(ce)
            hits.append(hit)
        ctx.save_for_backward(grad_hidden_RH, grad_weight_VH)
        ce_R, hit_R = torch.cat(ces), torch.cat(hits)
        ctx.mark_non_differentiable(ce_R, hit_R)
        return (ce_R * weight_R).sum(), ce_R, hit_R

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden_RH, grad_weight_VH = ctx.saved_tensors
        scale = grads[0]
        return grad_hidden_RH * scale.to(grad_hidden_RH.dtype), grad_weight_VH * scale, None, None, None, None


def soft_loss(
    hidden_RH: Tensor,
    lm_head_VH: Tensor,
    targets: TrainingTargets,
    place_R: Tensor,
    weight_R: Tensor,
    rows: RowGrads = row_grads,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted sum (differentiable), cross-entropy [R] and hits [R]. `place_R`: each row's place in `targets`.

    `rows`: `row_grads`, or that function compiled: softmax and gradient in one pass over the logits.
    """
    return _SoftLoss.apply(hidden_RH, lm_head_VH, targets, place_R, weight_R, rows)
