"""Kernel tests: Triton through its interpreter on the CPU, compiled on CUDA under the marker `gpu`.

The interpreter must be chosen before Triton is imported anywhere, so this file sets it at its own import.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# The one table: how far a result may be from the oracle, relative and absolute, by the type of the output.
# bf16: two roundings of 2^-9; fp32: the order of a sum.
TOLERANCE = {
    torch.bfloat16: {"rtol": 2**-7, "atol": 2**-8},
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture
def assert_close():
    """Compares in the output's type with the tolerance table; NaN and shape mismatches fail."""

    def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(
            actual.cpu(), expected.cpu().to(actual.dtype), **TOLERANCE[actual.dtype], check_stride=False
        )

    return check
