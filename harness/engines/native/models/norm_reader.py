"""The norm between two products: a kernel of its own, or a part of both (kernels/deferred_norm.py).

Shapes: rows T, inputs I, hidden H.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.split_linear import RowParallel
from specbench.kernels.deferred_norm import AddNorm, DeferredNorm, Rows
from specbench.kernels.rms_norm import add_rms_norm
from specbench.kernels.silu_and_mul import silu_and_mul


@dataclass(frozen=True, slots=True)
class NormReader:
    """The product that reads the rows of a norm; `is_gated`: `silu(gate) * up` of one product that has both."""

    product: Product
    is_gated: bool = False

    def __call__(self, x: Rows) -> Tensor:
        if isinstance(x, DeferredNorm):
            assert isinstance(self.product, Linear), "see takes_norm"
            return self.product.normed(x, self.is_gated)
        if not self.is_gated:
            return self.product(x)
        return self.product.gated(x) if isinstance(self.product, Linear) else silu_and_mul(self.product(x))

    def takes_norm(self, rows_TH: Tensor) -> bool:
        """Whether the norm of such rows can be left to it."""
        return type(self.product) is Linear and self.product.takes_norm(rows_TH, self.is_gated)


def product_add_rms_norm(
    product: Product, x_TI: Tensor, residual_TH: Tensor, weight_H: Tensor, eps: float, reader: NormReader | None
) -> Rows:
    """`residual += product(x)` in place, then its norm for `reader`."""
    if isinstance(product, RowParallel):
        return product.add_rms_norm(x_TI, residual_TH, weight_H, eps)
    if (
        type(product) is Linear
        and residual_TH.is_contiguous()
        and reader is not None
        and reader.takes_norm(residual_TH)
    ):
        deferred = product.add_norm(x_TI, AddNorm(residual_TH, weight_H, eps))
        if deferred is not None:
            return deferred
    return add_rms_norm(product(x_TI), residual_TH, weight_H, eps)
