"""The matrix product of a layer: one object that knows the fastest way to multiply its weight on its device.

Shapes: rows T, inputs I, outputs O. On a CPU with AVX512-BF16 and a C compiler, bfloat16 uses `kernels/product.py`, in
which a row has the same sums whether alone or among others. Otherwise, for the few rows of a decode round, oneDNN is
about twice as fast as torch's `F.linear`, which reads an [O, I] weight in file order. This requires that oneDNN may lay
out the weight once (`mkldnn._reorder_linear_weight`, the operator that torch's own CPU freezing pass uses), and that
the weight is not tiny, where its call costs more than the product. Every strategy, `no-spec` included, uses the same
products. On a GPU the few rows of a decode round use `kernels/bulk_gemm.py`, in which a product can do its part of the
norm before or after it (`kernels/deferred_norm.py`), those of many requests `kernels/wgmma_gemm.py`; where these do not
take them, `kernels/skinny_gemm.py`, and more rows cuBLAS, in captured steps by the fastest of its algorithms with the
same bits (`kernels/cublas_choice.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.kernels.bulk_gemm import Tiles, bulk_add, bulk_gated, bulk_linear, bulk_tiles
from specbench.kernels.cublas_choice import lt_algorithm, lt_linear
from specbench.kernels.deferred_norm import AddNorm, DeferredNorm, Part
from specbench.kernels.product import pack, product
from specbench.kernels.silu_and_mul import silu_and_mul
from specbench.kernels.skinny_gemm import FEW_ROWS, MAX_ROWS, skinny_blocks, skinny_gated, skinny_linear
from specbench.kernels.wgmma_gemm import wgmma_gated, wgmma_linear, wgmma_tiles

# oneDNN chooses the layout for a typical number of rows; 8 is best or nearly so from 1 to 512 rows.
_PACK_FOR_ROWS = 8
# A call of oneDNN costs 15 to 20 µs, one of `F.linear` 4: for fp32 weights up to this size, the call costs more.
_SMALL = 1 << 16


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and weight.dtype in (torch.float32, torch.bfloat16)
        and (weight.numel() > _SMALL if weight.dtype == torch.float32 else torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


class Linear:
    """y = x @ weight.T + bias, with the weight in the device's layout; a packed weight replaces the [O, I] one."""

    __slots__ = ("arithmetic", "bias", "in_features", "out_features", "_compiled", "_packed", "_weight")

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None, arithmetic: str = ""):
        """`arithmetic`: for the record, if the weight was stored in another form."""
        self.arithmetic = arithmetic
        self.out_features, self.in_features = weight_OI.shape
        self.bias = bias_O
        self._compiled = pack(weight_OI)
        packable = self._compiled is None and _can_pack(weight_OI)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI, _PACK_FOR_ROWS) if packable else None
        self._weight = None if packable or self._compiled is not None else weight_OI

    def __call__(self, x_TI: Tensor) -> Tensor:
        if self._compiled is not None:
            return product(x_TI, self._compiled, self.out_features, self.bias)
        if self._packed is not None:
            return torch.ops.mkldnn._linear_pointwise(x_TI, self._packed, self.bias, "none", [], "")
        assert self._weight is not None
        tiles = bulk_tiles(x_TI, self._weight)
        if tiles is not None:
            return bulk_linear(x_TI, self._weight, self.bias, tiles)
        wide_tiles = wgmma_tiles(x_TI, self._weight)
        if wide_tiles is not None:
            return wgmma_linear(x_TI, self._weight, self.bias, wide_tiles)
        blocks = skinny_blocks(x_TI, self._weight)
        if blocks is not None:
            return skinny_linear(x_TI, self._weight, self.bias, blocks)
        return _cublas(x_TI, self._weight, self.bias)

    @property
    def packed_weight(self) -> Tensor | None:
        """As kernels/product.py takes it; None if the product is not compiled."""
        return self._compiled

    def gated(self, x_TI: Tensor) -> Tensor:
        """`silu(gate) * up` [T, O / 2] for outputs that are gate rows, then up rows; only for a plain Linear."""
        if self.bias is None and self._weight is not None:
            tiles = bulk_tiles(x_TI, self._weight, is_gated=True)
            if tiles is not None:
                return bulk_gated(x_TI, self._weight, tiles)
            wide_tiles = wgmma_tiles(x_TI, self._weight, is_gated=True)
            if wide_tiles is not None:
                return wgmma_gated(x_TI, self._weight, wide_tiles)
            blocks = skinny_blocks(x_TI, self._weight, is_gated=True)
            if blocks is not None:
                return skinny_gated(x_TI, self._weight, blocks)
        return silu_and_mul(self(x_TI))

    def add_norm(self, x_TI: Tensor, norm: AddNorm) -> DeferredNorm | None:
        """Adds the product to `norm.residual_TH` in place and leaves the norm to what reads it; None where another
        kernel multiplies."""
        tiles = None if self._weight is None else bulk_tiles(x_TI, self._weight, part=Part.ADDS)
        if self._weight is None or tiles is None:
            return None
        return bulk_add(x_TI, self._weight, self.bias, tiles, norm)

    def takes_norm(self, rows_TI: Tensor, is_gated: bool) -> bool:
        """Whether the norm of such rows can be left to this product."""
        return self._deferred_tiles(rows_TI, is_gated) is not None

    def normed(self, x: DeferredNorm, is_gated: bool) -> Tensor:
        """The product, or `gated`, of rows whose norm was left to it."""
        tiles = self._deferred_tiles(x.rows_TH, is_gated)
        assert tiles is not None and self._weight is not None, "see takes_norm"
        return bulk_gated(x, self._weight, tiles) if is_gated else bulk_linear(x, self._weight, self.bias, tiles)

    def _deferred_tiles(self, rows_TI: Tensor, is_gated: bool) -> Tiles | None:
        if self._weight is None or is_gated and self.bias is not None:
            return None
        return bulk_tiles(rows_TI, self._weight, is_gated, Part.SCALES)


def _cublas(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    algorithm = lt_algorithm(x_TI, weight_OI) if bias_O is None else None
    if algorithm is not None:
        return lt_linear(x_TI, weight_OI, algorithm)
    with _blas_library("cublaslt") if _takes_lt(x_TI) else nullcontext():
        return F.linear(x_TI, weight_OI, bias_O)


def _takes_lt(x_TI: Tensor) -> bool:
    """Whether torch multiplies these rows through cuBLAS' Lt interface. On an H200 that is between 1% slower and 21%
    faster than torch's default for 17 to 64 rows of bfloat16, but up to 14% slower for 320 (products_gpu.py)."""
    return x_TI.is_cuda and x_TI.dtype.itemsize == 2 and FEW_ROWS < len(x_TI) <= MAX_ROWS


@contextmanager
def _blas_library(name: str) -> Iterator[None]:
    """torch has no such choice for a single product."""
    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library(name)
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(before)
