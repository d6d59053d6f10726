"""Products of rows with a bfloat16 matrix on a CPU with AVX512-BF16, compiled (products.c).

Legend: T rows, I inputs, O outputs, H hidden. A row gives the same bits alone and among others, and on any number of
threads.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specbench.kernels import compiled

_ONE_THREAD = 1 << 16  # elements of a matrix below which waking a second thread costs more than it saves


def pack(weight_OI: Tensor) -> Tensor | None:
    """The matrix as `product` takes it; None where that does not take it: another type or device, an odd number of
    inputs, a processor or a machine without what it needs."""
    if weight_OI.dtype != torch.bfloat16 or weight_OI.device.type != "cpu" or weight_OI.shape[1] % 2 or not fork():
        return None
    functions = compiled.library()
    panel = functions.specbench_product_panel() if functions is not None else 0
    if not panel:
        return None
    padded = F.pad(weight_OI.detach(), (0, 0, 0, -weight_OI.shape[0] % panel))
    return padded.view(-1, panel, weight_OI.shape[1] // 2, 2).transpose(1, 2).contiguous()


def product(x_TI: Tensor, packed: Tensor, num_outputs: int, bias_O: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias` [T, O] of a matrix that `pack` gave. Raises MemoryError."""
    assert x_TI.dtype == packed.dtype and x_TI.shape[1] == 2 * packed.shape[1] and x_TI.stride(1) == 1
    assert bias_O is None or (bias_O.dtype == packed.dtype and bias_O.is_contiguous())
    out_TO = x_TI.new_empty(x_TI.shape[0], num_outputs)
    functions = compiled.library()
    assert functions is not None
    failed = functions.specbench_product(
        x_TI.data_ptr(),
        packed.data_ptr(),
        None if bias_O is None else bias_O.data_ptr(),
        out_TO.data_ptr(),
        x_TI.shape[0],
        x_TI.shape[1],
        num_outputs,
        x_TI.stride(0),
        fork(),
        torch.get_num_threads() if packed.numel() > _ONE_THREAD else 1,
    )
    if failed:
        raise MemoryError(f"no memory for the sums of {x_TI.shape[0]} rows")
    return out_TO


def after_attention(
    attn_TI: Tensor,
    residual_TH: Tensor,
    o: Tensor,
    post_norm_H: Tensor,
    gate_up: Tensor,
    down: Tensor,
    next_norm_H: Tensor | None,
    eps: float,
) -> Tensor:
    """What follows attention in a dense layer, in one call instead of six: `residual += o(attn)` in place, and y is
    `down(silu(gate) * up)` of its norm. Then `residual += y` in place; returns its norm by `next_norm_H` [T, H].
    Without a next norm, returns `residual + y`. The products are as `pack` gave them, without biases. Raises
    MemoryError."""
    num_rows, hidden = residual_TH.shape
    intermediate = 2 * down.shape[1]
    assert attn_TI.stride(1) == residual_TH.stride(1) == 1 and attn_TI.shape == (num_rows, 2 * o.shape[1])
    assert attn_TI.dtype == residual_TH.dtype == post_norm_H.dtype == torch.bfloat16 and post_norm_H.is_contiguous()
    assert 2 * gate_up.shape[1] == hidden and (next_norm_H is None or next_norm_H.is_contiguous())
    num_outputs = [weight.shape[0] * weight.shape[2] for weight in (o, gate_up, down)]  # padded
    assert all(has >= needs for has, needs in zip(num_outputs, (hidden, 2 * intermediate, hidden), strict=True))
    out_TH = residual_TH.new_empty(num_rows, hidden)
    functions = compiled.library()
    assert functions is not None
    failed = functions.specbench_after_attention(
        attn_TI.data_ptr(),
        residual_TH.data_ptr(),
        o.data_ptr(),
        post_norm_H.data_ptr(),
        gate_up.data_ptr(),
        down.data_ptr(),
        None if next_norm_H is None else next_norm_H.data_ptr(),
        out_TH.data_ptr(),
        num_rows,
        attn_TI.shape[1],
        hidden,
        intermediate,
        attn_TI.stride(0),
        residual_TH.stride(0),
        eps,
        fork(),
        torch.get_num_threads() if gate_up.numel() > _ONE_THREAD else 1,
    )
    if failed:
        raise MemoryError(f"no memory for the sums of {num_rows} rows")
    return out_TH


@functools.cache
def fork() -> int | None:
    """Address of `GOMP_parallel` in the OpenMP that torch runs its own loops with: a second one would have threads of
    its own, and the two would spin beside each other."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    paths = {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if "/libgomp" in line}
    loaded = sorted(paths, key=lambda path: (not path.startswith(str(Path(torch.__file__).parent)), path))
    return ctypes.cast(ctypes.CDLL(loaded[0]).GOMP_parallel, ctypes.c_void_p).value if loaded else None
