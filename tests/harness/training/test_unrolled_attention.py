"""The merged flash attention against dense scores: values and every gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specbench.harness.training.unrolled_attention import unrolled_attention

SCALE = 0.25


def dense(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """The same written down with [T, T] scores and one more column for each later key."""
    width = q.shape[2]
    score = (q @ keys[0].mT * SCALE).masked_fill(torch.ones(width, width, device=q.device).triu(1).bool(), -1e9)
    own = [(q * k).sum(-1, keepdim=True) * SCALE for k in keys[1:]]
    share = torch.cat([score, *own], -1).softmax(-1)
    out = share[..., :width] @ values[0]
    for i, v in enumerate(values[1:]):
        out = out + share[..., width + i : width + i + 1] * v
    return out


def inputs(num_later: int, device: str, dtype: torch.dtype, width: int = 37) -> list[Tensor]:
    generator = torch.Generator().manual_seed(num_later)
    shape = (2, 3, width, 64)
    tensors = [torch.randn(shape, generator=generator) for _ in range(3 + 2 * num_later)]
    # Views as the head's layer makes them: [B, T, H, D] underneath.
    tensors = [t.transpose(1, 2).contiguous().transpose(1, 2).to(device, dtype) for t in tensors]
    return [t.requires_grad_() for t in tensors]


def run(function, tensors: list[Tensor], weight: Tensor) -> list[Tensor]:
    q, *rest = tensors
    out = function(q, rest[0::2], rest[1::2])
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), tensors)]


@pytest.mark.parametrize("num_later", [0, 1, 4])
def test_values_and_gradients_are_those_of_dense_attention(num_later):
    tensors = inputs(num_later, "cpu", torch.float32)
    weight = torch.randn(tensors[0].shape, generator=torch.Generator().manual_seed(9))
    got = run(lambda q, k, v: unrolled_attention(q, k, v, SCALE), tensors, weight)
    for a, b in zip(got, run(dense, tensors, weight), strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("num_later", [0, 1, 4])
@pytest.mark.parametrize("width", [32, 160])
def test_values_and_gradients_on_a_gpu(num_later, width):
    tensors = inputs(num_later, "cuda", torch.bfloat16, width)
    weight = torch.randn(tensors[0].shape, generator=torch.Generator().manual_seed(9)).cuda()
    exact = [t.detach().float().requires_grad_() for t in tensors]
    got = run(lambda q, k, v: unrolled_attention(q, k, v, SCALE), tensors, weight.bfloat16())
    for a, b in zip(got, run(dense, exact, weight), strict=True):
        assert float((a.float() - b).abs().max()) < 0.02 * float(b.abs().max()) + 1e-3
