import math

import numpy as np
import pytest
import torch

from specbench.kernels.gumbel_noise import add_gumbel, add_gumbel_ref, add_gumbel_triton
from specbench.kernels.philox import PURPOSE_SAMPLE, uniform
from specbench.kernels.sample import sample_ref

OPS = [add_gumbel_ref, add_gumbel_triton, add_gumbel]


def keys(rows: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(rows, device=device) * 7919 + 3, torch.arange(rows, device=device) * 5 + (3 << 24)


@pytest.mark.parametrize("vocab", [1, 3, 130, 2500])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("op", OPS)
def test_noise_against_float64_and_none_in_greedy_rows(op, vocab, dtype, device):
    logits = torch.randn(3, vocab, generator=torch.Generator().manual_seed(vocab)).to(device, dtype)
    logits[0, 0] = math.nan
    is_random = torch.tensor([True, False, True], device=device)
    seed, position = keys(3, device)
    out = op(logits, is_random, seed, position)
    assert out.dtype == torch.float32
    noise = -np.log(-np.log1p(-uniform(seed, position, PURPOSE_SAMPLE, vocab).cpu().double().numpy()))
    clean = torch.nan_to_num(logits.double(), nan=-math.inf).cpu().numpy()
    np.testing.assert_allclose(out.cpu().numpy(), clean + noise * is_random.cpu().numpy()[:, None], atol=1e-4)


@pytest.mark.parametrize("op", OPS)
def test_its_largest_is_what_the_sampler_takes(op, device):
    logits = torch.randn(50, 130, generator=torch.Generator().manual_seed(0)).to(device)
    seed, position = keys(50, device)
    noisy = op(logits, torch.ones(50, dtype=torch.bool, device=device), seed, position)
    assert torch.equal(noisy.argmax(dim=1), sample_ref(logits, torch.ones(50, device=device), seed, position, False))


@pytest.mark.parametrize("op", OPS)
def test_no_rows(op, device):
    none = torch.empty(0, device=device)
    assert op(torch.empty(0, 12, device=device), none.bool(), none.long(), none.long()).shape == (0, 12)
