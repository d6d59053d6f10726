"""Attention of one unrolled training step: causal over the first pass, plus the key of the same row in later passes.

In step k row p represents an engine that has the target's features up to p and has drafted k tokens since: its query
sees the first pass's keys 0..p and, of every later pass i <= k, only the key of row p (EAGLE-3's training-time test,
arXiv 2503.01840). No [T, T] scores are kept: the causal part goes through the flash kernel, whose result is merged with
the extra keys by their logsumexp. The flash kernel's backward is exact for the merged result when it is given the
merged output and logsumexp, the identity that ring attention uses (arXiv 2310.01889).

Legend: B sequences, H heads (keys repeated to the query heads), T positions, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

_ops = torch.ops.aten


def _flash(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Causal attention, its fp32 logsumexp [B, H, T], and the random state that a GPU's backward needs."""
    if q.device.type == "cpu":
        out, lse = _ops._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True, scale=scale)
        return out, lse, ()
    result = _ops._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=scale)
    return result[0], result[1], (result[6], result[7])


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, random: tuple[Tensor, ...], scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    if q.device.type == "cpu":
        return _ops._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, True, scale=scale
        )
    width = q.shape[2]
    return _ops._scaled_dot_product_flash_attention_backward(
        grad, q, k, v, out, lse, None, None, width, width, 0.0, True, *random, scale=scale
    )


class _Context(FunctionCtx):
    scale: float
    random: tuple[Tensor, ...]  # state of the kernel's generator
    saved_tensors: tuple[Tensor, ...]


class _UnrolledAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, scale: float, q: Tensor, k0: Tensor, v0: Tensor, *later: Tensor) -> Tensor:
        out, lse, random = _flash(q, k0, v0, scale)
        if later:
            scores = [(q.float() * k.float()).sum(-1) * scale for k in later[0::2]]
            merged_lse = torch.stack([lse, *scores]).logsumexp(0)
            mixed = out.float() * (lse - merged_lse).exp().unsqueeze(-1)
            for score, v in zip(scores, later[1::2], strict=True):
                mixed = mixed + (score - merged_lse).exp().unsqueeze(-1) * v.float()
            out, lse = mixed.to(q.dtype), merged_lse
        ctx.scale = scale
        ctx.random = random
        ctx.save_for_backward(q, k0, v0, out, lse, *later)
        return out

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k0, v0, out, lse, *later = ctx.saved_tensors
        # The kernel needs the memory layout of its forward: [B, T, H, D].
        grad, out = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (grads[0], out))
        grad_q, grad_k0, grad_v0 = _flash_backward(grad, q, k0, v0, out, lse, ctx.random, ctx.scale)
        if not later:
            return None, grad_q, grad_k0, grad_v0
        g, wide_q = grad.float(), q.float()
        dot = (g * out.float()).sum(-1)
        total_q, grads_later = grad_q.float(), []
        for k, v in zip(later[0::2], later[1::2], strict=True):
            share = ((wide_q * k.float()).sum(-1) * ctx.scale - lse).exp()
            grad_score = (share * ((g * v.float()).sum(-1) - dot) * ctx.scale).unsqueeze(-1)
            total_q = total_q + grad_score * k.float()
            grads_later += [(grad_score * wide_q).to(k.dtype), (share.unsqueeze(-1) * g).to(v.dtype)]
        return None, total_q.to(q.dtype), grad_k0, grad_v0, *grads_later


def unrolled_attention(q: Tensor, keys: list[Tensor], values: list[Tensor], scale: float) -> Tensor:
    """[B, H, T, D]. `keys[0]`, `values[0]` are the first pass's; the others are those of later passes, newest last."""
    later = [x for pair in zip(keys[1:], values[1:], strict=True) for x in pair]
    return _UnrolledAttention.apply(scale, q, keys[0], values[0], *later)
