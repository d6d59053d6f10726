"""A feed-forward block of experts: each row goes through the k whose router logits are largest, weighted and summed.

Five launches of shapes that the host knows, so that a graph captures them: routing, a plan that sorts (row, expert)
pairs by expert into blocks of one expert each, gate and up with their activation, down, and the sum over a row's
experts. A weight is read once for all pairs of a block; experts without rows are not read.

Legend: T rows, E experts, k experts a row, N = T * k pairs (row-major), H hidden size, I an expert's inner size,
X = 2 * I (gate rows, then up rows), M pairs of a block, B blocks that there may be.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.kernels.fp8 import GROUP, LARGEST, LEAST, quantized_group
from specbench.kernels.route_experts import plan_triton, route_ref
from specbench.kernels.silu_and_mul import silu_and_mul_ref
from specbench.kernels.triton_support import dispatch, tl, triton


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """The expert weights of one layer. E4M3 weights have scales, fp32: [E, outputs / 128, inputs / 128], or [E,
    outputs, 1]."""

    gate_up_EXH: Tensor
    down_EHI: Tensor
    read_2: Tensor  # int64: experts that had rows, and passes; counted on the device
    gate_up_scale: Tensor | None = None
    down_scale: Tensor | None = None


def experts_ref(x_TH: Tensor, logits_TE: Tensor, weights: ExpertWeights, k: int, normalised: bool) -> Tensor:
    """[T, H] of x's type. Waits for the device; unquantized weights alone."""
    assert weights.gate_up_scale is None, "E4M3 weights are dequantised where no kernel multiplies them"
    weight_Tk, expert_Tk = route_ref(logits_TE, k, normalised)
    sum_TH = torch.zeros(x_TH.shape, dtype=torch.float32, device=x_TH.device)
    read = expert_Tk.unique().tolist()
    for expert in read:
        row, place = (expert_Tk == expert).nonzero(as_tuple=True)
        inner = silu_and_mul_ref(F.linear(x_TH[row], weights.gate_up_EXH[expert]))
        y = F.linear(inner, weights.down_EHI[expert]) * weight_Tk[row, place, None].to(x_TH.dtype)
        sum_TH.index_add_(0, row, y.float())
    weights.read_2.add_(torch.tensor([len(read), 1], device=x_TH.device))
    return sum_TH.to(x_TH.dtype)


def experts_triton(x_TH: Tensor, logits_TE: Tensor, weights: ExpertWeights, k: int, normalised: bool) -> Tensor:
    (num_rows, hidden), device = x_TH.shape, x_TH.device
    inner, pairs = weights.down_EHI.shape[2], num_rows * k
    assert x_TH.is_contiguous() and logits_TE.is_contiguous(), "columns must be dense"
    out_TH = torch.empty_like(x_TH)
    if num_rows == 0:
        return out_TH
    plan = plan_triton(logits_TE, weights.read_2, k, normalised, x_TH.dtype)
    block_m, sorted_BM, expert_B, weight_N = plan.block_m, plan.sorted_BM, plan.expert_B, plan.weight_N
    inner_NI = torch.empty((pairs, inner), dtype=x_TH.dtype, device=device)
    out_NH = torch.empty((pairs, hidden), dtype=x_TH.dtype, device=device)
    gate_up = _scales(weights.gate_up_EXH, weights.gate_up_scale)
    down = _scales(weights.down_EHI, weights.down_scale)
    num_warps, num_stages = (8 if block_m >= 128 else 4), (3 if block_m <= 64 else 2)
    block_o = 64
    _gate_up_kernel[(plan.num_blocks, triton.cdiv(inner, block_o))](
        x_TH, weights.gate_up_EXH, weights.gate_up_scale, sorted_BM, expert_B, inner_NI, pairs, K=k, INPUTS=hidden,
        OUTPUTS=inner, M=block_m, BLOCK_O=block_o, SCALES=gate_up, GROUP=GROUP, LARGEST=LARGEST, LEAST=LEAST,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    _down_kernel[(plan.num_blocks, triton.cdiv(hidden, block_o))](
        inner_NI, weights.down_EHI, weights.down_scale, sorted_BM, expert_B, weight_N, out_NH, pairs, INPUTS=inner,
        OUTPUTS=hidden, M=block_m, BLOCK_O=block_o, SCALES=down, GROUP=GROUP, LARGEST=LARGEST, LEAST=LEAST,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    block_h = min(1024, triton.next_power_of_2(hidden))
    _sum_experts_kernel[(num_rows, triton.cdiv(hidden, block_h))](
        out_NH, out_TH, hidden, K=k, BLOCK_H=block_h, num_warps=4
    )
    return out_TH


experts = dispatch(experts_ref, experts_triton)


def _scales(weight_EOI: Tensor, scale: Tensor | None) -> str:
    if scale is None:
        return "none"
    return "row" if scale.shape[1] == weight_EOI.shape[1] else "block"


@triton.jit
def _weight_tile(
    weight_ptr, scale_ptr, expert, output, start, BLOCK_I: tl.constexpr, INPUTS: tl.constexpr, ROWS: tl.constexpr,
    last, SCALES: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """[BLOCK_I, outputs] of an expert's weight from input `start` on, and the scales of its outputs there. `output`
    counts rows of the expert's ROWS; those from `last` on are not read."""
    column = start + tl.arange(0, BLOCK_I)
    inside = (column < INPUTS)[:, None] & (output < last)[None, :]
    at = weight_ptr + (expert * ROWS + output)[None, :] * INPUTS + column[:, None]
    weight = tl.load(at, mask=inside, other=0.0)
    if SCALES == "block":
        groups: tl.constexpr = INPUTS // GROUP
        place = (expert * (ROWS // GROUP) + output // GROUP) * groups + start // GROUP
        scale = tl.load(scale_ptr + place, mask=output < last, other=0.0)
    elif SCALES == "row":
        scale = tl.load(scale_ptr + expert * ROWS + output, mask=output < last, other=0.0)
    else:
        scale = tl.zeros_like(output).to(tl.float32)
    return weight, scale


@triton.jit
def _gate_up_kernel(
    x_ptr, weight_ptr, scale_ptr, sorted_ptr, block_expert_ptr, inner_ptr, pairs, K: tl.constexpr,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, M: tl.constexpr, BLOCK_O: tl.constexpr, SCALES: tl.constexpr,
    GROUP: tl.constexpr, LARGEST: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    BLOCK_I: tl.constexpr = GROUP if SCALES != "none" else 64
    expert = tl.load(block_expert_ptr + tl.program_id(0)).to(tl.int64)
    if expert < 0:
        return
    pair = tl.load(sorted_ptr + tl.program_id(0) * M + tl.arange(0, M)).to(tl.int64)
    output = tl.program_id(1).to(tl.int64) * BLOCK_O + tl.arange(0, BLOCK_O)
    gate = tl.zeros((M, BLOCK_O), dtype=tl.float32)
    up = tl.zeros((M, BLOCK_O), dtype=tl.float32)
    for start in range(0, INPUTS, BLOCK_I):
        column = start + tl.arange(0, BLOCK_I)
        inside = (pair < pairs)[:, None] & (column < INPUTS)[None, :]
        x = tl.load(x_ptr + (pair // K)[:, None] * INPUTS + column[None, :], mask=inside, other=0.0)
        gate_weight, gate_scale = _weight_tile(
            weight_ptr, scale_ptr, expert, output, start, BLOCK_I, INPUTS, 2 * OUTPUTS, OUTPUTS, SCALES, GROUP
        )
        up_weight, up_scale = _weight_tile(
            weight_ptr, scale_ptr, expert, OUTPUTS + output, start, BLOCK_I, INPUTS, 2 * OUTPUTS, 2 * OUTPUTS, SCALES,
            GROUP,
        )  # fmt: skip
        if SCALES != "none":
            quantized, x_scale = quantized_group(x.to(tl.float32), LARGEST, LEAST)
            gate += tl.dot(quantized, gate_weight) * x_scale[:, None] * gate_scale[None, :]
            up += tl.dot(quantized, up_weight) * x_scale[:, None] * up_scale[None, :]
        else:
            gate = tl.dot(x, gate_weight, gate, input_precision="ieee")
            up = tl.dot(x, up_weight, up, input_precision="ieee")
    # As two products in the run's dtype would leave them.
    gate = gate.to(inner_ptr.dtype.element_ty).to(tl.float32)
    up = up.to(inner_ptr.dtype.element_ty).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(
        inner_ptr + pair[:, None] * OUTPUTS + output[None, :], y.to(inner_ptr.dtype.element_ty),
        mask=(pair < pairs)[:, None] & (output < OUTPUTS)[None, :],
    )  # fmt: skip


@triton.jit
def _down_kernel(
    inner_ptr, weight_ptr, scale_ptr, sorted_ptr, block_expert_ptr, share_ptr, out_ptr, pairs, INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr, M: tl.constexpr, BLOCK_O: tl.constexpr, SCALES: tl.constexpr, GROUP: tl.constexpr,
    LARGEST: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    BLOCK_I: tl.constexpr = GROUP if SCALES != "none" else 64
    expert = tl.load(block_expert_ptr + tl.program_id(0)).to(tl.int64)
    if expert < 0:
        return
    pair = tl.load(sorted_ptr + tl.program_id(0) * M + tl.arange(0, M)).to(tl.int64)
    output = tl.program_id(1).to(tl.int64) * BLOCK_O + tl.arange(0, BLOCK_O)
    total = tl.zeros((M, BLOCK_O), dtype=tl.float32)
    for start in range(0, INPUTS, BLOCK_I):
        column = start + tl.arange(0, BLOCK_I)
        inside = (pair < pairs)[:, None] & (column < INPUTS)[None, :]
        x = tl.load(inner_ptr + pair[:, None] * INPUTS + column[None, :], mask=inside, other=0.0)
        weight, scale = _weight_tile(
            weight_ptr, scale_ptr, expert, output, start, BLOCK_I, INPUTS, OUTPUTS, OUTPUTS, SCALES, GROUP
        )
        if SCALES != "none":
            quantized, x_scale = quantized_group(x.to(tl.float32), LARGEST, LEAST)
            total += tl.dot(quantized, weight) * x_scale[:, None] * scale[None, :]
        else:
            total = tl.dot(x, weight, total, input_precision="ieee")
    share = tl.load(share_ptr + pair, mask=pair < pairs, other=0.0).to(tl.float32)
    y = total.to(out_ptr.dtype.element_ty).to(tl.float32) * share[:, None]
    tl.store(
        out_ptr + pair[:, None] * OUTPUTS + output[None, :], y.to(out_ptr.dtype.element_ty),
        mask=(pair < pairs)[:, None] & (output < OUTPUTS)[None, :],
    )  # fmt: skip


@triton.jit
def _sum_experts_kernel(pairs_ptr, out_ptr, hidden, K: tl.constexpr, BLOCK_H: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    total = tl.zeros((BLOCK_H,), dtype=tl.float32)
    for index in tl.static_range(K):
        total += tl.load(pairs_ptr + (row * K + index) * hidden + column, mask=column < hidden, other=0.0).to(
            tl.float32
        )
    tl.store(out_ptr + row * hidden + column, total.to(out_ptr.dtype.element_ty), mask=column < hidden)
