"""The sum of a tensor over all ranks: by NCCL (gloo on a CPU), or through memory that every GPU can read.

Symmetric memory is torch's (`torch.distributed._symmetric_memory`). In `one-shot`, each rank reads and adds the data of
all others; in `two-shot`, only its own part, which it then sends to all.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

METHODS = ("auto", "nccl", "one-shot", "two-shot")
LARGEST = 16 << 20  # bytes of the shared buffer; larger sums, of long prompts, go through NCCL whatever the method

# By ranks: bytes up to which a method is the fastest in a CUDA graph on H200 with NVLink, with the copies to and from
# the shared buffer, of which two-shot has one more. Two ranks: measured (benchmarks/README.md). Four: one-shot reads
# three times as much a rank, so it loses earlier; not measured yet.
_BEST = {
    2: ((256 << 10, "one-shot"), (LARGEST, "two-shot")),
    4: ((32 << 10, "one-shot"), (LARGEST, "two-shot")),
}

_THROUGH_NCCL = ("nccl", "gloo")  # torch.distributed's own; gloo on a CPU


def best(num_bytes: int, num_ranks: int) -> str:
    """The method that `auto` chooses for a sum of this many bytes."""
    return next((method for most, method in _BEST[num_ranks] if num_bytes <= most), "nccl")


def check_method(method: str, device: torch.device) -> None:
    """ValueError for a method that the device does not have."""
    if device.type != "cuda" and method in ("one-shot", "two-shot"):
        raise ValueError(
            f"all_reduce: {method!r} is not allowed on {device.type}: symmetric memory is memory of GPUs; allowed: "
            "auto, nccl (gloo on a CPU)"
        )


class AllReduce:
    """All-reduce of one process group: all ranks sum the same shapes in the same order."""

    def __init__(self, method: str, num_ranks: int, device: torch.device, dtype: torch.dtype):
        check_method(method, device)
        self._method, self._num_ranks = method if device.type == "cuda" else "gloo", num_ranks
        if self._method not in _THROUGH_NCCL:
            import torch.distributed._symmetric_memory as symm_mem

            self._shared = symm_mem.empty(LARGEST // dtype.itemsize, dtype=dtype, device=device)
            world = dist.group.WORLD
            assert world is not None, "group.py's join comes first"
            symm_mem.rendezvous(self._shared, world)
            self._group_name = world.group_name

    def shared(self, x: Tensor) -> Tensor:
        """The start of the buffer in the shape of `x`."""
        return self._shared[: x.numel()].view(x.shape)

    def __str__(self) -> str:
        return self._method

    def __call__(self, x: Tensor) -> Tensor:
        """The sum, in `x` itself or in a new tensor; never in the buffer, which the next sum overwrites."""
        method = best(x.nbytes, self._num_ranks) if self._method == "auto" else self._method
        if method in _THROUGH_NCCL or x.nbytes > LARGEST:
            dist.all_reduce(x)
            return x
        shared = self.shared(x)
        shared.copy_(x)
        if method == "one-shot":
            return torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", self._group_name)
        torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", self._group_name)
        return x.copy_(shared)
