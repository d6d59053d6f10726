"""The matrix product of a layer: one object that knows the fastest way to multiply its weight on its device.

Shapes: rows T, inputs I, outputs O.

On a CPU torch's `F.linear` reads an [O, I] weight in the order of the file; oneDNN is about twice as fast for the few
rows of a decode round when it may lay the weight out itself once (`mkldnn._reorder_linear_weight`, the operator that
torch's own CPU freezing pass uses). Every strategy, `no-spec` included, goes through the same products.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# oneDNN chooses the layout for a typical number of rows; 8 is best or nearly so from 1 to 512 rows.
_PACK_FOR_ROWS = 8


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and weight.dtype in (torch.float32, torch.bfloat16)
        and (weight.dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


class Linear:
    """y = x @ weight.T + bias, with the weight laid out for the device; a packed weight replaces the [O, I] one."""

    __slots__ = ("bias", "in_features", "out_features", "_packed", "_weight")

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None):
        self.out_features, self.in_features = weight_OI.shape
        self.bias = bias_O
        packable = _can_pack(weight_OI)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI, _PACK_FOR_ROWS) if packable else None
        self._weight = None if packable else weight_OI

    def __call__(self, x_TI: Tensor) -> Tensor:
        if self._packed is not None:
            return torch.ops.mkldnn._linear_pointwise(x_TI, self._packed, self.bias, "none", [], "")
        assert self._weight is not None
        return F.linear(x_TI, self._weight, self.bias)
