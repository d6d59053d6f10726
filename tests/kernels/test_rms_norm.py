import pytest
import torch

from specbench.kernels.rms_norm import (
    add_rms_norm,
    add_rms_norm_ref,
    add_rms_norm_triton,
    rms_norm,
    rms_norm_ref,
    rms_norm_triton,
)

EPS = 1e-5
SHAPES = [(1, 64), (3, 576), (5, 100), (2, 1025)]
DTYPES = [torch.bfloat16, torch.float32]


def oracle(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x, weight = x.double().cpu(), weight.double().cpu()
    return x / (x.pow(2).mean(dim=1, keepdim=True) + EPS).sqrt() * weight


def inputs(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(shape[1])
    tensors = [torch.randn(size, generator=generator) for size in (shape, shape, shape[1:])]
    return [tensor.to(device, dtype) for tensor in tensors]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [rms_norm_ref, rms_norm_triton, rms_norm])
def test_rms_norm(op, shape, dtype, device, assert_close):
    x, _, weight = inputs(shape, dtype, device)
    before = x.clone()
    assert_close(op(x, weight, EPS), oracle(x, weight))
    assert torch.equal(x, before)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [add_rms_norm_ref, add_rms_norm_triton, add_rms_norm])
def test_add_rms_norm_adds_in_place_in_the_tensors_type(op, shape, dtype, device, assert_close):
    x, residual, weight = inputs(shape, dtype, device)
    total = x + residual
    y = op(x, residual, weight, EPS)
    if device.type == "cuda" or op is not add_rms_norm_triton:
        assert torch.equal(residual, total)
    assert_close(residual, total)  # Triton's interpreter cuts bf16 off where devices round
    assert_close(y, oracle(residual, weight))


@pytest.mark.parametrize("op", [rms_norm_ref, rms_norm_triton])
def test_strided_rows_in_and_out(op, device, assert_close):
    x, _, weight = inputs((3, 100), torch.float32, device)
    wide_in = torch.full((3, 150), float("nan"), device=device)
    wide_in[:, 50:] = x
    wide_out = torch.full((3, 220), float("nan"), device=device)
    out = wide_out[:, 100:200]
    assert op(wide_in[:, 50:], weight, EPS, out=out) is out
    assert_close(out, oracle(x, weight))
    assert wide_out[:, :100].isnan().all() and wide_out[:, 200:].isnan().all()


@pytest.mark.parametrize("op", [add_rms_norm_ref, add_rms_norm_triton])
def test_add_writes_to_a_view_of_a_wider_buffer(op, device, assert_close):
    x, residual, weight = inputs((2, 64), torch.bfloat16, device)
    wide_out = torch.full((2, 128), float("nan"), device=device, dtype=torch.bfloat16)
    op(x, residual, weight, EPS, out=wide_out[:, 64:])
    assert_close(wide_out[:, 64:].contiguous(), oracle(residual, weight))
    assert wide_out[:, :64].isnan().all()


@pytest.mark.parametrize("op", [rms_norm_ref, rms_norm_triton])
def test_no_rows(op, device):
    assert op(torch.empty(0, 64, device=device), torch.ones(64, device=device), EPS).shape == (0, 64)
