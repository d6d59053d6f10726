"""Loads the experts of a checkpoint one by one into one tensor per layer, so that nothing is in memory twice.

Shapes: experts E, hidden H, an expert's intermediate size I, X = 2 * I.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.experts_config import ExpertsConfig
from specbench.harness.engines.native.models.fp8_linear import Fp8Matrix, dequantised, multiplies_fp8
from specbench.harness.engines.native.models.fused_weights import single
from specbench.harness.engines.native.models.mlp import Experts
from specbench.harness.engines.native.models.weights import WeightSource
from specbench.kernels.experts import ExpertWeights
from specbench.kernels.fp8 import E4M3, GROUP


def read_layer_experts(source: WeightSource, prefix: str, c: ModelConfig, shape: ExpertsConfig) -> Experts:
    """Reads the experts of the layer whose names start with `prefix`. ValueError naming a tensor that is missing or
    does not fit."""
    router = single(source, f"{prefix}mlp.gate", shape.num_experts, c.hidden_size)
    hidden, inner, own = c.hidden_size, shape.intermediate_size, shape.intermediate_size // source.group.size
    stacks = {"gate_up": _Stack(shape.num_experts, 2 * own, hidden), "down": _Stack(shape.num_experts, hidden, own)}
    for expert in range(shape.num_experts):
        module = f"{prefix}mlp.experts.{expert}."
        stacks["gate_up"].put(expert, 0, source, f"{module}gate_proj", (inner, hidden), split=0)
        stacks["gate_up"].put(expert, own, source, f"{module}up_proj", (inner, hidden), split=0)
        stacks["down"].put(expert, 0, source, f"{module}down_proj", (hidden, inner), split=1)
    gate_up, down = stacks["gate_up"], stacks["down"]
    if gate_up.arithmetic != down.arithmetic:
        raise ValueError(
            f"checkpoint: config.json says that of {prefix}mlp.experts some matrices are quantized and some are not; "
            "allowed: all or none"
        )
    device = gate_up.weight.device
    read_2 = torch.zeros(2, dtype=torch.int64, device=device)
    weights = ExpertWeights(gate_up.weight, down.weight, read_2, gate_up.scale, down.scale)
    return Experts(shape, router, weights, gate_up.arithmetic, source.group)


class _Stack:
    """One matrix of all experts, filled part by part. It has the format of the first part."""

    weight: Tensor
    scale: Tensor | None
    arithmetic: str

    def __init__(self, num_experts: int, outputs: int, inputs: int):
        self._shape = (num_experts, outputs, inputs)
        self._put: Callable[[int, int, Tensor | Fp8Matrix], None] | None = None

    def put(
        self, expert: int, first: int, source: WeightSource, module: str, shape: tuple[int, int], split: int
    ) -> None:
        """Fills an expert's rows from `first` on with this rank's part of a matrix of that shape."""
        matrix = source.fp8(module, shape, split)
        part = source.get(f"{module}.weight", shape, split) if matrix is None else matrix
        if self._put is None:
            self._put = self._begin(part, source.dtype)
        elif isinstance(part, Fp8Matrix) != bool(self.arithmetic):
            raise ValueError(
                f"checkpoint: config.json says that of the experts beside {module} some are quantized and some are "
                "not; allowed: all or none"
            )
        self._put(expert, first, part)

    def _begin(self, part: Tensor | Fp8Matrix, dtype: torch.dtype) -> Callable[[int, int, Tensor | Fp8Matrix], None]:
        experts, outputs, inputs = self._shape
        self.scale, self.arithmetic = None, ""
        if isinstance(part, Fp8Matrix) and _is_kept(part, self._shape, dtype):
            device, blocks = part.weight_OI.device, part.format.scales == "block"
            self.arithmetic = f"{part.format.stored}, activations in groups of {GROUP}"
            self.weight = torch.empty(self._shape, dtype=E4M3, device=device)
            scales = (experts, outputs // GROUP, inputs // GROUP) if blocks else (experts, outputs, 1)
            self.scale = torch.empty(scales, dtype=torch.float32, device=device)
            return self._keep
        device = part.weight_OI.device if isinstance(part, Fp8Matrix) else part.device
        self.weight = torch.empty(self._shape, dtype=dtype, device=device)
        if isinstance(part, Fp8Matrix):
            self.arithmetic = dequantised(part.format, dtype)
        return self._copy

    def _keep(self, expert: int, first: int, part: Tensor | Fp8Matrix) -> None:
        assert isinstance(part, Fp8Matrix) and self.scale is not None
        rows = len(part.weight_OI)
        self.weight[expert, first : first + rows].view(torch.uint8).copy_(part.weight_OI.view(torch.uint8))
        place = first * len(part.scale) // rows
        self.scale[expert, place : place + len(part.scale)].copy_(part.scale)

    def _copy(self, expert: int, first: int, part: Tensor | Fp8Matrix) -> None:
        wide = part.widened() if isinstance(part, Fp8Matrix) else part
        self.weight[expert, first : first + len(wide)].copy_(wide)


def _is_kept(part: Fp8Matrix, shape: tuple[int, int, int], dtype: torch.dtype) -> bool:
    whole = all(size % GROUP == 0 for size in (*part.weight_OI.shape, *shape[1:]))
    return whole and part.format.activations == "dynamic" and multiplies_fp8(part.weight_OI.device, dtype)
