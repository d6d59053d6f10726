"""Products with E4M3 weights: in FP8 on a GPU that supports it; elsewhere dequantised once, at load.

Shapes: rows T, inputs I, outputs O; B and G blocks of 128 outputs and inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.quantization import Activations, Fp8Format
from specbench.kernels.fp8 import E4M3, GROUP, LARGEST, fp8_block_linear, quantize_rows, widen_blocks

_FIRST_CAPABILITY = (8, 9)  # lowest of the NVIDIA GPUs that multiply E4M3
_ROW_ALIGNMENT = 16  # outputs and inputs, as torch._scaled_mm takes them


@dataclass(frozen=True, slots=True)
class Fp8Matrix:
    """One matrix of a checkpoint. `scale`: fp32 [B, G] for blocks, else [O, 1]. `input_scale`: fp32 [], if static."""

    weight_OI: Tensor
    scale: Tensor
    format: Fp8Format
    input_scale: Tensor | None = None

    def widened(self) -> Tensor:
        """fp32 [O, I]."""
        by_row = len(self.scale) == len(self.weight_OI)
        return self.weight_OI.float() * self.scale if by_row else widen_blocks(self.weight_OI, self.scale)


def multiplies_fp8(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether E4M3 products run on this device for rows of this dtype."""
    return (
        device.type == "cuda"
        and dtype == torch.bfloat16
        and torch.cuda.get_device_capability(device) >= _FIRST_CAPABILITY
    )


def fp8_product(parts: Sequence[Fp8Matrix], bias_O: Tensor | None, dtype: torch.dtype) -> Product:
    """Several matrices over the same input as one product, with the fastest arithmetic that their layout allows."""
    fp8 = parts[0].format
    sizes = [part.weight_OI.shape for part in parts]
    native = multiplies_fp8(parts[0].weight_OI.device, dtype) and fp8.activations != "none"
    if native and fp8.scales == "block" and all(size % GROUP == 0 for shape in sizes for size in shape):
        return Fp8BlockLinear(_joined([p.weight_OI for p in parts]), torch.cat([p.scale for p in parts]), bias_O)
    if native and fp8.scales != "block" and all(size % _ROW_ALIGNMENT == 0 for shape in sizes for size in shape):
        scale_O1 = torch.cat([part.scale for part in parts])
        return Fp8RowLinear(_joined([p.weight_OI for p in parts]), scale_O1, _largest(parts), bias_O, fp8)
    weight_OI = torch.cat([part.widened().to(dtype) for part in parts])
    return Linear(weight_OI, bias_O, dequantised(fp8, dtype))


def dequantised(fp8: Fp8Format, dtype: torch.dtype) -> str:
    """The arithmetic of such a matrix."""
    return f"{fp8.stored}, dequantised to {str(dtype).removeprefix('torch.')}"


def _joined(weights: Sequence[Tensor]) -> Tensor:
    return torch.cat([weight.view(torch.uint8) for weight in weights]).view(E4M3)


def _largest(parts: Sequence[Fp8Matrix]) -> Tensor | None:
    """The largest of the static scales: the parts share their input, which is quantized once."""
    scales = [part.input_scale for part in parts if part.input_scale is not None]
    return torch.stack(scales).max() if scales else None


class Fp8BlockLinear:
    """y = x @ weight.T + bias with one scale per 128x128 block of the weight, and per row and 128 inputs of x."""

    __slots__ = ("arithmetic", "bias", "in_features", "out_features", "_scale_BG", "_weight_OI")

    def __init__(self, weight_OI: Tensor, scale_BG: Tensor, bias_O: Tensor | None):
        self.out_features, self.in_features = weight_OI.shape
        self.bias = bias_O
        self.arithmetic = f"fp8 e4m3 block {GROUP}x{GROUP}, activations in groups of {GROUP}"
        self._weight_OI, self._scale_BG = weight_OI, scale_BG

    def __call__(self, x_TI: Tensor) -> Tensor:
        return fp8_block_linear(x_TI, self._weight_OI, self._scale_BG, self.bias)

    def widened(self) -> Tensor:
        """fp32 [O, I]."""
        return widen_blocks(self._weight_OI, self._scale_BG)


class Fp8RowLinear:
    """y = x @ weight.T + bias by torch._scaled_mm, with one scale per row of the weight and per row of x, or one for
    all of x.

    The scale of a matrix with a single one is repeated, so joined matrices keep their own.
    """

    __slots__ = ("arithmetic", "bias", "in_features", "out_features", "_input_scale", "_scale_1O", "_weight_OI")

    def __init__(
        self, weight_OI: Tensor, scale_O1: Tensor, input_scale: Tensor | None, bias_O: Tensor | None, fp8: Fp8Format
    ):
        self.out_features, self.in_features = weight_OI.shape
        self.bias = bias_O
        self._weight_OI, self._scale_1O, self._input_scale = weight_OI, scale_O1.t().contiguous(), input_scale
        self.arithmetic = f"{fp8.stored}, {_ACTIVATIONS[fp8.activations]}"

    def __call__(self, x_TI: Tensor) -> Tensor:
        if self._input_scale is None:
            quantized_TI, scale_T1 = quantize_rows(x_TI)
        else:
            quantized_TI = (x_TI.float() / self._input_scale).clamp_(-LARGEST, LARGEST).to(E4M3)
            scale_T1 = self._input_scale.expand(len(x_TI), 1).contiguous()
        return torch._scaled_mm(
            quantized_TI, self._weight_OI.t(), scale_T1, self._scale_1O, bias=self.bias, out_dtype=x_TI.dtype
        )

    def widened(self) -> Tensor:
        """fp32 [O, I]."""
        return self._weight_OI.float() * self._scale_1O.t()


_ACTIVATIONS: dict[Activations, str] = {
    "dynamic": "activations by row",
    "static": "activations by the checkpoint's scales",
}

Product = Linear | Fp8BlockLinear | Fp8RowLinear
