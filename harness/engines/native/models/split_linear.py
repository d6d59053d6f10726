"""Products of which each rank of a group has a part: of the inputs, whose sums are added, or of the outputs.

Shapes: rows T, inputs I, outputs O, hidden H.
"""

from __future__ import annotations

from torch import Tensor

from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.group import Group
from specbench.harness.engines.native.models.linear import Linear


class RowParallel(Linear):
    """`own` multiplies this rank's part of the inputs with its columns of the weight; the sum over all ranks is the
    product. A bias is that of one rank."""

    __slots__ = ("own", "_group")

    def __init__(self, own: Product, group: Group):
        self.own, self._group = own, group
        self.out_features, self.in_features = own.out_features, own.in_features
        self.bias, self.arithmetic = own.bias, own.arithmetic

    def __call__(self, x_TI: Tensor) -> Tensor:
        return self._group.all_reduce(self.own(x_TI))

    def add_rms_norm(self, x_TI: Tensor, residual_TH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        """See norm_reader.py."""
        return self._group.add_rms_norm(self.own(x_TI), residual_TH, weight_H, eps)


class GatheredLinear(Linear):
    """`own` has this rank's part of the outputs, which are gathered: lm_head. `out_features` counts all of them."""

    __slots__ = ("own", "_group")

    def __init__(self, own: Product, group: Group):
        self.own, self._group = own, group
        self.out_features, self.in_features = own.out_features * group.size, own.in_features
        self.bias, self.arithmetic = None, own.arithmetic

    def __call__(self, x_TI: Tensor) -> Tensor:
        return self._group.gather(self.own(x_TI))


def gathered(own: Product, group: Group) -> Product:
    return own if group.size == 1 else GatheredLinear(own, group)
