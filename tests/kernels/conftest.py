"""Kernel tests: Triton through its interpreter on the CPU, compiled on CUDA under the marker `gpu`.

The interpreter must be chosen before any kernel file is imported: tests/conftest.py does.
"""

import pytest
import torch

# The one table: how far a result may be from the oracle, relative and absolute, by the type of the output.
# bf16: two roundings of 2^-9; fp32: the order of a sum.
TOLERANCE = {
    torch.bfloat16: {"rtol": 2**-7, "atol": 2**-8},
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where a test's tensors live; CPU cases of Triton kernels are skipped where the GPU cases run instead."""
    if request.param == "cpu" and "triton" in request.node.name and not kernels_are_interpreted():
        if torch.cuda.is_available():
            pytest.skip("kernels are compiled in this process; the same case runs on the GPU with -m gpu")
        pytest.fail("kernel files were imported before TRITON_INTERPRET=1 was set")
    return torch.device(request.param)


def kernels_are_interpreted() -> bool:
    from triton.runtime.interpreter import InterpretedFunction

    from specbench.kernels import rms_norm

    return isinstance(rms_norm._rms_norm_kernel, InterpretedFunction)


@pytest.fixture
def assert_close():
    """Compares in the output's type with the tolerance table; NaN and shape mismatches fail."""

    def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(
            actual.cpu(), expected.cpu().to(actual.dtype), **TOLERANCE[actual.dtype], check_stride=False
        )

    return check
