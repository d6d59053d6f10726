import pytest
import torch

from specbench.kernels.silu_and_mul import silu_and_mul, silu_and_mul_ref, silu_and_mul_triton


@pytest.mark.parametrize("shape", [(1, 2), (3, 1536), (5, 777), (17, 1100), (0, 8)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("op", [silu_and_mul_ref, silu_and_mul_triton, silu_and_mul])
def test_silu_and_mul(op, shape, dtype, device, assert_close):
    rows, width = shape
    gate_up = (torch.randn(rows, 2 * width, generator=torch.Generator().manual_seed(1)) * 4).to(device, dtype)
    before = gate_up.clone()
    gate, up = gate_up.cpu().double().chunk(2, dim=1)
    y = op(gate_up)
    assert y.is_contiguous() and y.dtype == dtype
    assert_close(y, gate / (1 + torch.exp(-gate)) * up)
    assert torch.equal(gate_up, before)


@pytest.mark.parametrize("op", [silu_and_mul_ref, silu_and_mul_triton])
def test_large_negative_gates_give_nought_rather_than_nan(op, device):
    gate_up = torch.tensor([[-200.0, 200.0, 3.0, 3.0]], device=device)
    assert op(gate_up).tolist() == [[0.0, 600.0]]
