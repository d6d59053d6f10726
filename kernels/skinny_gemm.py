"""Matrix products of the few rows of a decode round, which are bound by reading the weights.

One program multiplies a block of outputs with all rows and streams its part of the weights once, through as many stages
as keep the memory busy. Before it waits for the kernel that computes `x`, it prefetches its first weights into the L2
cache (programmatic dependent launch, see triton_support.py). A row has the same sum alone and among up to 16 rows; with
17 to 64 it goes through other blocks and may differ in the last bits.
Legend: T rows of the step, I inputs, O outputs, X = 2*O (gate rows, then up rows).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.kernels.silu_and_mul import silu_and_mul_ref
from specbench.kernels.triton_support import early_launch, tl, triton, use_triton, wait_for_inputs

MAX_ROWS = 64  # beyond them cuBLAS is as fast or faster
FEW_ROWS = 16  # rows of the narrowest product of tensor cores as Triton makes it; fewer are padded
ROW_BLOCKS = (16, 32, 64)  # numbers of rows are padded to one of these: each is a compilation
# Smaller matrices (of toys) stay with cuBLAS: there a launch is all that counts.
_MIN_ELEMENTS = 1 << 18
_ALIGNMENT = 16  # inputs, for loads of 16 bytes
_LINE = 64  # elements of a 128-byte cache line
_PREFETCH_BYTES = 8_000_000
_NUM_SMS = 132  # multiprocessors of an H100 or H200


@dataclass(frozen=True, slots=True)
class Blocks:
    """Outputs and inputs of a block, Triton's stages and warps, and cache lines of each output that are prefetched."""

    outputs: int
    inputs: int
    num_stages: int
    num_warps: int
    prefetch: int = 0


def skinny_blocks(x_TI: Tensor, weight_OI: Tensor, is_gated: bool = False) -> Blocks | None:
    """The launch of `skinny_linear` or `skinny_gated` for these operands; None where cuBLAS takes them."""
    if (
        not use_triton(x_TI)
        or not 0 < x_TI.shape[0] <= MAX_ROWS
        or x_TI.dtype != weight_OI.dtype
        or x_TI.dtype not in (torch.bfloat16, torch.float16)
    ):
        return None
    return choose_blocks(x_TI.shape[0], weight_OI.shape[0], weight_OI.shape[1], is_gated)


@cache
def choose_blocks(num_rows: int, num_outputs: int, num_inputs: int, is_gated: bool) -> Blocks | None:
    """The launch of a shape, None where cuBLAS is faster: measured on an H200 by benchmarks/forward_gpu.py in whole
    passes of Llama-3.1-8B, Qwen2.5-1.5B and SmolLM2-135M, and by benchmarks/products_gpu.py for a rank's part of
    Llama-3.1-8B and Llama-2-70B, whose qkv among four ranks is up to 4% slower than cuBLAS for up to 16 rows.
    `num_outputs` counts gate and up.

    Other GPUs take the same launches; those without programmatic dependent launch lose the early start.
    """
    if num_outputs * num_inputs < _MIN_ELEMENTS or num_inputs % _ALIGNMENT:
        return None
    is_wide = num_outputs >= 16384
    is_short = num_inputs <= 1024
    prefetch = _prefetched_lines(num_outputs, num_inputs)
    if is_gated:
        return _gated_blocks(num_rows, num_outputs, is_short, prefetch)
    if num_rows > FEW_ROWS:
        if is_wide:
            return Blocks(128, 64, 4, 4)
        # Among four ranks o of Llama-3.1-8B has 1,024 inputs and 4,096 outputs: cuBLAS is faster.
        return Blocks(64, 64, 6, 4, prefetch) if is_short and num_outputs < 4096 else None
    if is_wide:
        return Blocks(32, 128, 6, 4, prefetch) if is_short else Blocks(128, 128, 3, 4)
    if is_short or num_outputs > 32 * _NUM_SMS:
        return Blocks(64, 64 if num_inputs % 128 else 128, 6, 4, prefetch)
    if num_outputs < 32 * 64 and num_inputs > 4096:  # too few blocks, each too long
        return None
    return Blocks(32, 512, 4, 4, prefetch)


def _gated_blocks(num_rows: int, num_outputs: int, is_short: bool, prefetch: int) -> Blocks | None:
    num_blocks = num_outputs // 128  # of 64 gate and 64 up rows
    has_few_blocks = num_blocks < _NUM_SMS // 2
    if num_rows <= FEW_ROWS:
        return Blocks(32, 256, 4, 4, prefetch) if has_few_blocks and not is_short else Blocks(64, 128, 4, 4, prefetch)
    if is_short:
        return Blocks(16, 128, 6, 4, prefetch)
    if has_few_blocks:
        return None
    # Blocks of 128 inputs fill a multiprocessor's shared memory alone: they pay where the last wave is nearly full.
    slots = -(-num_blocks // _NUM_SMS) * _NUM_SMS
    return Blocks(64, 128, 4, 4) if slots < 1.25 * num_blocks else Blocks(64, 64, 4, 4)


def _prefetched_lines(num_outputs: int, num_inputs: int) -> int:
    """Cache lines of each output's weights that come to about `_PREFETCH_BYTES`: a power of two."""
    lines = min(_PREFETCH_BYTES // (num_outputs * 2 * _LINE), num_inputs // _LINE)
    return 1 << lines.bit_length() - 1 if lines else 0


def skinny_linear_ref(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias` as a dense [T, O] tensor, summed in fp32."""
    return F.linear(x_TI, weight_OI, bias_O)


def skinny_linear(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, blocks: Blocks) -> Tensor:
    """`skinny_linear_ref` in Triton."""
    return _launch(x_TI, weight_OI, bias_O, False, blocks)


def skinny_gated_ref(x_TI: Tensor, gate_up_XI: Tensor) -> Tensor:
    """`silu(x @ gate.T) * (x @ up.T)` as a dense [T, O] tensor."""
    return silu_and_mul_ref(F.linear(x_TI, gate_up_XI))


def skinny_gated(x_TI: Tensor, gate_up_XI: Tensor, blocks: Blocks) -> Tensor:
    """`skinny_gated_ref` in Triton; both products are rounded to x's type first, as they are there."""
    return _launch(x_TI, gate_up_XI, None, True, blocks)


def _launch(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, is_gated: bool, blocks: Blocks) -> Tensor:
    num_rows, num_inputs = x_TI.shape
    num_outputs = weight_OI.shape[0] // (2 if is_gated else 1)
    assert x_TI.stride(1) == 1 and weight_OI.is_contiguous(), "columns must be dense"
    assert 0 < num_rows <= MAX_ROWS and weight_OI.shape[1] == num_inputs and num_inputs % _ALIGNMENT == 0
    out_TO = torch.empty((num_rows, num_outputs), dtype=x_TI.dtype, device=x_TI.device)
    _skinny_gemm_kernel[(triton.cdiv(num_outputs, blocks.outputs),)](
        x_TI,
        weight_OI,
        bias_O,
        out_TO,
        num_rows,
        num_outputs,
        x_TI.stride(0),
        INPUTS=num_inputs,
        IS_GATED=is_gated,
        PREFETCH=blocks.prefetch if x_TI.is_cuda else 0,  # the interpreter knows no inline assembly
        BLOCK_T=max(FEW_ROWS, triton.next_power_of_2(num_rows)),
        BLOCK_O=blocks.outputs,
        BLOCK_I=blocks.inputs,
        num_warps=blocks.num_warps,
        num_stages=blocks.num_stages,
        **early_launch(x_TI),
    )
    return out_TO


@triton.jit
def _prefetch(row_ptrs, NUM_LINES: tl.constexpr):
    """The first cache lines of each row into the L2 cache."""
    lines = row_ptrs + (tl.arange(0, NUM_LINES) * 64)[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [lines], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _weights(row_ptrs, inputs, INPUTS: tl.constexpr, BLOCK_I: tl.constexpr):
    if INPUTS % BLOCK_I == 0:
        return tl.load(row_ptrs + inputs[None, :], eviction_policy="evict_first")
    else:
        inside = (inputs < INPUTS)[None, :]
        return tl.load(row_ptrs + inputs[None, :], mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit(do_not_specialize=["num_rows"])
def _skinny_gemm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    num_rows,
    num_outputs,
    stride_x,
    INPUTS: tl.constexpr,
    IS_GATED: tl.constexpr,
    PREFETCH: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_I: tl.constexpr,
    EARLY: tl.constexpr,
):
    output = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    row = tl.arange(0, BLOCK_T)
    # The last block reads its last row again instead of masking every load.
    row_ptrs = weight_ptr + (tl.minimum(output, num_outputs - 1).to(tl.int64) * INPUTS)[:, None]
    up_ptrs = row_ptrs + num_outputs.to(tl.int64) * INPUTS
    if PREFETCH > 0:
        _prefetch(row_ptrs, PREFETCH)
        if IS_GATED:
            _prefetch(up_ptrs, PREFETCH)
    wait_for_inputs(EARLY)
    acc = tl.zeros((BLOCK_O, BLOCK_T), tl.float32)
    acc_up = tl.zeros((BLOCK_O, BLOCK_T), tl.float32)
    for start in range(0, INPUTS, BLOCK_I):
        inputs = start + tl.arange(0, BLOCK_I)
        inside = (row < num_rows)[None, :]
        if INPUTS % BLOCK_I != 0:
            inside = inside & (inputs < INPUTS)[:, None]
        x = tl.load(x_ptr + row[None, :] * stride_x + inputs[:, None], mask=inside, other=0.0)
        acc = tl.dot(_weights(row_ptrs, inputs, INPUTS, BLOCK_I), x, acc, input_precision="ieee")
        if IS_GATED:
            acc_up = tl.dot(_weights(up_ptrs, inputs, INPUTS, BLOCK_I), x, acc_up, input_precision="ieee")
    dtype = out_ptr.dtype.element_ty
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + output, mask=output < num_outputs, other=0.0).to(tl.float32)
        acc += bias[:, None]
    if IS_GATED:
        gate = acc.to(dtype).to(tl.float32)
        acc = gate / (1.0 + tl.exp(-gate)) * acc_up.to(dtype).to(tl.float32)
    inside = (output < num_outputs)[:, None] & (row < num_rows)[None, :]
    tl.store(out_ptr + row[None, :] * num_outputs + output[:, None], acc.to(dtype), mask=inside)
