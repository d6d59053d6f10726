"""The norm between two matrix products of few rows, done by both of them instead of by a kernel between them.

The product before it adds its outputs to the residual. It stores the sum, the sum times the norm's weight, and the
squares of the sum, added up by parts of a row. The product after it multiplies these rows and divides its own outputs
by the root mean square, which is the same for all of a row's inputs. Its rows are rounded once, as those of a norm are.
Used by bulk_gemm.py on Hopper GPUs, which makes a pass over up to 48 rows 1 to 2% shorter for Llama-3.1-8B and 4 to 10%
for SmolLM2-135M; with more rows (wgmma_gemm.py) Llama-3.1-8B gains nothing (benchmarks/kernels.md).
Legend: T rows of the step, H hidden size, P parts of a row, I inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class DeferredNorm:
    """Rows [T, H] that are still to be divided by `sqrt(squares.sum(1) / H + eps)`; squares [T, P] in fp32."""

    rows_TH: Tensor
    squares_TP: Tensor
    eps: float


Rows: TypeAlias = Tensor | DeferredNorm


@dataclass(frozen=True, slots=True)
class AddNorm:
    """The residual [T, H] that a product's outputs are added to, in place, and the norm that follows; all dense."""

    residual_TH: Tensor
    weight_H: Tensor
    eps: float


class Part(Enum):
    """Which part of a norm a product does."""

    NONE = auto()
    ADDS = auto()
    SCALES = auto()


def add_ref(y_TH: Tensor, norm: AddNorm, size: int) -> DeferredNorm:
    """What is stored for outputs `y`, with squares added up over parts of this size."""
    sum_TH = norm.residual_TH.add_(y_TH).float()
    squares_TP = torch.stack([piece.sum(1) for piece in (sum_TH**2).split(size, dim=1)], dim=1)
    return DeferredNorm((sum_TH * norm.weight_H.float()).to(y_TH.dtype), squares_TP, norm.eps)


def scales_ref(norm: DeferredNorm) -> Tensor:
    """By which the outputs of the product after it are multiplied: [T, 1] in fp32."""
    mean_T1 = norm.squares_TP.sum(1, keepdim=True) / norm.rows_TH.shape[1]
    return (mean_T1 + norm.eps).rsqrt()
