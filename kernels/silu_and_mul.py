"""The gated activation of Llama's feed-forward block: silu(gate) * up.

Legend: T rows of the step, I intermediate size, X = 2*I (gate columns, then up columns).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.kernels import compiled
from specbench.kernels.triton_support import dispatch, early_launch, tl, triton, wait_for_inputs


def silu_and_mul_ref(gate_up_TX: Tensor) -> Tensor:
    """`silu(gate) * up` as a dense [T, I] tensor of the input's type."""
    gate_TI, up_TI = gate_up_TX.chunk(2, dim=-1)
    return F.silu(gate_TI).mul_(up_TI)


def silu_and_mul_triton(gate_up_TX: Tensor) -> Tensor:
    num_rows, intermediate = gate_up_TX.shape[0], gate_up_TX.shape[1] // 2
    assert gate_up_TX.stride(1) == 1, "columns must be dense"
    out_TI = torch.empty((num_rows, intermediate), dtype=gate_up_TX.dtype, device=gate_up_TX.device)
    if num_rows == 0:
        return out_TI
    # Few rows: smaller blocks, so that the row is spread over more multiprocessors.
    block = 512 if num_rows <= 16 else 1024 if num_rows <= 64 else 2048
    grid = (num_rows, triton.cdiv(intermediate, block))
    _silu_and_mul_kernel[grid](
        gate_up_TX,
        out_TI,
        gate_up_TX.stride(0),
        intermediate,
        BLOCK_I=block,
        num_warps=max(block // 256, 4),
        **early_launch(gate_up_TX),
    )
    return out_TI


def silu_and_mul_c(gate_up_TX: Tensor) -> Tensor:
    num_rows, intermediate = gate_up_TX.shape[0], gate_up_TX.shape[1] // 2
    assert gate_up_TX.stride(1) == 1, "columns must be dense"
    out_TI = gate_up_TX.new_empty(num_rows, intermediate)
    functions = compiled.library()
    assert functions is not None
    functions.specbench_silu_and_mul(
        gate_up_TX.data_ptr(), out_TI.data_ptr(), num_rows, intermediate, gate_up_TX.stride(0)
    )
    return out_TI


silu_and_mul = dispatch(silu_and_mul_ref, silu_and_mul_triton, silu_and_mul_c)


@triton.jit
def _silu_and_mul_kernel(gate_up_ptr, out_ptr, stride_in, intermediate, BLOCK_I: tl.constexpr, EARLY: tl.constexpr):
    wait_for_inputs(EARLY)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_I + tl.arange(0, BLOCK_I)
    inside = column < intermediate
    gate_at = gate_up_ptr + row * stride_in + column
    gate = tl.load(gate_at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_at + intermediate, mask=inside, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * intermediate + column, y.to(out_ptr.dtype.element_ty), mask=inside)
