"""From the host to the device without waiting for it: through pinned memory, which torch keeps until the copy has
run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

_ALIGNED_BYTES = 16
Array: TypeAlias = "list[int] | np.ndarray"


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; on a CPU, itself."""
    if device.type != "cuda":
        return tensor
    return _pinned(tensor).to(device, non_blocking=True)


def send_into(out: Tensor, tensor: Tensor) -> None:
    """Into a tensor of the device, which keeps its address."""
    out.copy_(_pinned(tensor) if out.is_cuda else tensor, non_blocking=True)


def send_rows_into(out_SX: Tensor, row_R: Tensor, values_RX: Tensor) -> None:
    """Into these rows of a tensor of the device."""
    out_SX.index_copy_(0, send(row_R, out_SX.device), send(values_RX, out_SX.device))


def _pinned(tensor: Tensor) -> Tensor:
    """A copy in pinned memory. Not `Tensor.pin_memory`, which copies more than 32,768 numbers with the threads of all
    cores: these spin afterwards, and a busy core delays the step."""
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    pinned.numpy()[...] = tensor.numpy()
    return pinned


def send_together(arrays: Sequence[Array], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Each array as a tensor of its own on the device, all in one copy."""
    return split(send(join(arrays, dtype), device), arrays)


def join(arrays: Sequence[Array], dtype: torch.dtype) -> Tensor:
    """The arrays behind each other, on the host."""
    starts = _starts(arrays, dtype)
    joined = torch.zeros(starts[-1], dtype=dtype)
    for start, values in zip(starts, arrays, strict=False):
        joined.numpy()[start : start + len(values)] = values
    return joined


def split(joined: Tensor, arrays: Sequence[Array]) -> list[Tensor]:
    """The place of each array in what `join` made of them."""
    starts = _starts(arrays, joined.dtype)
    return [joined[start : start + len(values)] for start, values in zip(starts, arrays, strict=False)]


def _starts(arrays: Sequence[Array], dtype: torch.dtype) -> list[int]:
    """Each is aligned to 16 bytes, because Triton would compile a second kernel for unaligned ones."""
    step = _ALIGNED_BYTES // dtype.itemsize
    return [0, *accumulate(-(-len(values) // step) * step for values in arrays)]
