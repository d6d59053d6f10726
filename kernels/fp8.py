"""Products of E4M3 weights with rows that are quantized as they come: scales of 128x128 blocks, or of whole rows.

Legend: T rows, I inputs, O outputs, G groups of 128 inputs, B blocks of 128 outputs.
A quantized value is x / scale rounded to E4M3 (largest 448), with scale = largest |x| of its group / 448.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.kernels.triton_support import dispatch, tl, triton

E4M3 = torch.float8_e4m3fn
GROUP = 128
LARGEST = 448.0
LEAST = 1e-10  # replaces the largest value of a group of zeros


def widen_blocks(weight_OI: Tensor, scale_BG: Tensor) -> Tensor:
    """fp32 [O, I]: each value times the scale of its block; the last blocks may be smaller."""
    outputs, inputs = weight_OI.shape
    scale_OI = scale_BG.float().repeat_interleave(GROUP, 0)[:outputs].repeat_interleave(GROUP, 1)[:, :inputs]
    return weight_OI.float() * scale_OI


def quantize_groups_ref(x_TI: Tensor) -> tuple[Tensor, Tensor]:
    """E4M3 [T, I] and fp32 scales [T, G]; I must be a multiple of 128."""
    num_rows, inputs = x_TI.shape
    x_TGi = x_TI.float().view(num_rows, inputs // GROUP, GROUP)
    scale_TG1 = x_TGi.abs().amax(2, keepdim=True).clamp(min=LEAST) / LARGEST
    return (x_TGi / scale_TG1).to(E4M3).view(num_rows, inputs), scale_TG1.squeeze(2)


def fp8_block_linear_ref(x_TI: Tensor, weight_OI: Tensor, scale_BG: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias` of x's type: both sides E4M3, sums in fp32, a scale of x for each row and 128 inputs."""
    quantized_TI, scale_TG = quantize_groups_ref(x_TI)
    wide_TI = quantized_TI.float() * scale_TG.repeat_interleave(GROUP, 1)
    y_TO = F.linear(wide_TI, widen_blocks(weight_OI, scale_BG))
    return (y_TO if bias_O is None else y_TO + bias_O.float()).to(x_TI.dtype)


def fp8_block_linear_triton(x_TI: Tensor, weight_OI: Tensor, scale_BG: Tensor, bias_O: Tensor | None = None) -> Tensor:
    num_rows, inputs = x_TI.shape
    outputs = weight_OI.shape[0]
    assert x_TI.stride(1) == 1 and weight_OI.is_contiguous() and scale_BG.is_contiguous(), "columns must be dense"
    assert outputs % GROUP == 0 and inputs % GROUP == 0, (outputs, inputs)
    y_TO = torch.empty((num_rows, outputs), dtype=x_TI.dtype, device=x_TI.device)
    if num_rows == 0:
        return y_TO
    block_t, block_o = tile(num_rows, outputs, x_TI.device)
    grid = (outputs // block_o, triton.cdiv(num_rows, block_t))
    _fp8_block_linear_kernel[grid](
        x_TI,
        weight_OI,
        scale_BG,
        bias_O,
        y_TO,
        x_TI.stride(0),
        num_rows,
        outputs,
        INPUTS=inputs,
        BLOCK_T=block_t,
        BLOCK_O=block_o,
        GROUP=GROUP,
        LARGEST=LARGEST,
        LEAST=LEAST,
        num_warps=8 if block_t * block_o >= 128 * 128 else 4,
        num_stages=4 if block_t <= 32 else 3,
    )
    return y_TO


fp8_block_linear = dispatch(fp8_block_linear_ref, fp8_block_linear_triton)


def tile(num_rows: int, outputs: int, device: torch.device) -> tuple[int, int]:
    """Rows and outputs of a program: few rows are bound by the weight's bytes, so as many programs as the device runs
    read them; no output is split, so that a row's sums do not depend on other rows."""
    block_t = min(128, max(16, triton.next_power_of_2(num_rows)))
    num_sms = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    block_o = GROUP
    while block_o > 32 and triton.cdiv(num_rows, block_t) * (outputs // block_o) < num_sms:
        block_o //= 2
    return block_t, block_o


def quantize_rows_ref(x_TI: Tensor) -> tuple[Tensor, Tensor]:
    """E4M3 [T, I] and fp32 scales [T, 1]: each row by its own largest value."""
    scale_T1 = x_TI.float().abs().amax(1, keepdim=True).clamp(min=LEAST) / LARGEST
    return (x_TI.float() / scale_T1).to(E4M3), scale_T1


def quantize_rows_triton(x_TI: Tensor) -> tuple[Tensor, Tensor]:
    num_rows, inputs = x_TI.shape
    assert x_TI.stride(1) == 1, "columns must be dense"
    quantized_TI = torch.empty((num_rows, inputs), dtype=E4M3, device=x_TI.device)
    scale_T1 = torch.empty((num_rows, 1), dtype=torch.float32, device=x_TI.device)
    if num_rows:
        _quantize_rows_kernel[(num_rows,)](
            x_TI,
            quantized_TI,
            scale_T1,
            x_TI.stride(0),
            INPUTS=inputs,
            BLOCK=1024,
            LARGEST=LARGEST,
            LEAST=LEAST,
            num_warps=4,
        )
    return quantized_TI, scale_T1


quantize_rows = dispatch(quantize_rows_ref, quantize_rows_triton)


@triton.jit
def quantized_group(x, LARGEST: tl.constexpr, LEAST: tl.constexpr):
    """Quantizes fp32 [rows, one group]: E4M3 values, and fp32 scales [rows]."""
    scale = tl.maximum(tl.max(tl.abs(x), axis=1), LEAST) / LARGEST
    return (x / scale[:, None]).to(tl.float8e4nv), scale


@triton.jit
def _fp8_block_linear_kernel(
    x_ptr,
    weight_ptr,
    scale_ptr,
    bias_ptr,
    y_ptr,
    stride_x,
    num_rows,
    outputs,
    INPUTS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_O: tl.constexpr,
    GROUP: tl.constexpr,
    LARGEST: tl.constexpr,
    LEAST: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    output = tl.program_id(0).to(tl.int64) * BLOCK_O + tl.arange(0, BLOCK_O)
    inside = row < num_rows
    column = tl.arange(0, GROUP)
    x_at = x_ptr + row[:, None] * stride_x + column[None, :]
    weight_at = weight_ptr + output[None, :] * INPUTS + column[:, None]
    scale_at = scale_ptr + (tl.program_id(0) * BLOCK_O // GROUP) * (INPUTS // GROUP)
    total = tl.zeros((BLOCK_T, BLOCK_O), dtype=tl.float32)
    for _ in range(0, INPUTS // GROUP):
        x = tl.load(x_at, mask=inside[:, None], other=0.0).to(tl.float32)
        quantized, x_scale = quantized_group(x, LARGEST, LEAST)
        # Tensor cores add E4M3 products in fewer bits than fp32: 128 inputs at most before the sum goes on in fp32.
        total += tl.dot(quantized, tl.load(weight_at)) * (x_scale * tl.load(scale_at))[:, None]
        x_at += GROUP
        weight_at += GROUP
        scale_at += 1
    if bias_ptr is not None:
        total += tl.load(bias_ptr + output).to(tl.float32)[None, :]
    tl.store(y_ptr + row[:, None] * outputs + output[None, :], total.to(y_ptr.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _quantize_rows_kernel(
    x_ptr,
    quantized_ptr,
    scale_ptr,
    stride_x,
    INPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGEST: tl.constexpr,
    LEAST: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    largest = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, INPUTS, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + column, mask=column < INPUTS, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(x))
    scale = tl.maximum(tl.max(largest, axis=0), LEAST) / LARGEST
    tl.store(scale_ptr + row, scale)
    for start in range(0, INPUTS, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + column, mask=column < INPUTS, other=0.0).to(tl.float32)
        tl.store(quantized_ptr + row * INPUTS + column, (x / scale).to(tl.float8e4nv), mask=column < INPUTS)
