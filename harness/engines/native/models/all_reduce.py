"""The sum of a tensor over all ranks: by NCCL (gloo on a CPU), or through memory that every GPU can reach.

Symmetric memory is torch's (`torch.distributed._symmetric_memory`). In `one-shot`, each rank reads and adds the data of
all others; in `two-shot`, only its own part, which it then sends to all; in `fused`, it gets the data of all others,
and residual and norm are part of the same kernel (kernels/all_reduce_norm.py).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from specbench.kernels.all_reduce_norm import Inbox, all_reduce_add_rms_norm, all_reduce_rows
from specbench.kernels.rms_norm import add_rms_norm
from specbench.kernels.triton_support import HAS_TRITON

METHODS = ("auto", "nccl", "one-shot", "two-shot", "fused")
LARGEST = 16 << 20  # bytes of the shared buffer; larger sums, of long prompts, go through NCCL whatever the method

# By ranks: bytes up to which a method is the fastest in a CUDA graph on H200 with NVLink, with all that the engine adds
# to it: copies to and from the shared buffer, of which two-shot has one more, and a norm for all but `fused`. Measured
# (benchmarks/kernels.md) up to what rows of 4,096 fit into the inbox of `fused`, 4 MiB; wider rows go on to 8 MiB.
_BEST = {
    2: ((8 << 20, "fused"), (256 << 10, "one-shot"), (LARGEST, "two-shot")),
    4: ((8 << 20, "fused"), (32 << 10, "one-shot"), (LARGEST, "two-shot")),
}

_THROUGH_NCCL = ("nccl", "gloo")  # torch.distributed's own; gloo on a CPU


def best(num_bytes: int, num_ranks: int, *, can_fuse: bool = True) -> str:
    """The method that `auto` chooses for a sum of this many bytes."""
    methods = [each for each in _BEST[num_ranks] if can_fuse or each[1] != "fused"]
    return next((method for most, method in methods if num_bytes <= most), "nccl")


def method_for(asked: str, num_bytes: int, num_ranks: int, *, can_fuse: bool) -> str:
    """How a sum goes that was asked for by this method; `can_fuse`: whether its rows fit into the inbox."""
    if asked in _THROUGH_NCCL or num_bytes > LARGEST:
        return "nccl"
    if asked in ("one-shot", "two-shot") or (asked == "fused" and can_fuse):
        return asked
    return best(num_bytes, num_ranks, can_fuse=can_fuse)


def check_method(method: str, device: torch.device) -> None:
    """ValueError for a method that the device does not have."""
    if device.type != "cuda" and method not in ("auto", "nccl"):
        raise ValueError(
            f"all_reduce: {method!r} is not allowed on {device.type}: symmetric memory is memory of GPUs; allowed: "
            "auto, nccl (gloo on a CPU)"
        )
    if method == "fused" and not HAS_TRITON:
        allowed = ", ".join(METHODS[:-1])
        raise ValueError(f"all_reduce: 'fused' needs Triton, which is not installed; allowed: {allowed}")


class Sum:
    """The sum over the ranks of a group: of one rank, its own part."""

    def __call__(self, x: Tensor) -> Tensor:
        """May write into `x`."""
        return x

    def add_rms_norm(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        """`residual += sum` in place, then its norm; `x` may be overwritten."""
        return add_rms_norm(self(x_TH), residual_TH, weight_H, eps)


class AllReduce(Sum):
    """All-reduce of one process group: all ranks sum the same shapes in the same order."""

    def __init__(self, method: str, num_ranks: int, device: torch.device, dtype: torch.dtype):
        check_method(method, device)
        self._method, self._num_ranks = method if device.type == "cuda" else "gloo", num_ranks
        self._inbox: Inbox | None = None
        if self._method in _THROUGH_NCCL:
            return
        self._shared, _ = _symmetric((LARGEST // dtype.itemsize,), dtype, device)
        self._group_name = _world().group_name
        if self._method in ("auto", "fused") and HAS_TRITON:
            words, addresses = _symmetric(Inbox.shape(num_ranks), Inbox.word_type(dtype), device)
            self._inbox = Inbox.over(words, addresses, dist.get_rank())
            torch.cuda.synchronize()
            dist.barrier()  # no rank writes into an inbox that is not cleared yet

    def shared(self, x: Tensor) -> Tensor:
        """The start of the buffer in the shape of `x`."""
        return self._shared[: x.numel()].view(x.shape)

    def __str__(self) -> str:
        return self._method

    def __call__(self, x: Tensor) -> Tensor:
        """The sum, in `x` itself or in a new tensor; never in the buffer, which the next sum overwrites."""
        method = self._method_of(x)
        if method == "fused":
            assert self._inbox is not None
            return all_reduce_rows(x, self._inbox)
        if method in _THROUGH_NCCL:
            dist.all_reduce(x)
            return x
        shared = self.shared(x)
        shared.copy_(x)
        if method == "one-shot":
            return torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", self._group_name)
        torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", self._group_name)
        return x.copy_(shared)

    def add_rms_norm(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        if self._method_of(x_TH) != "fused":
            return super().add_rms_norm(x_TH, residual_TH, weight_H, eps)
        assert self._inbox is not None
        return all_reduce_add_rms_norm(x_TH, self._inbox, residual_TH, weight_H, eps)

    def _method_of(self, x: Tensor) -> str:
        can_fuse = self._inbox is not None and self._inbox.takes(x)
        return method_for(self._method, x.nbytes, self._num_ranks, can_fuse=can_fuse)


def _symmetric(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, list[int]]:
    """A tensor that all ranks of the default group can reach, and the address of each rank's."""
    import torch.distributed._symmetric_memory as symm_mem

    tensor = symm_mem.empty(*shape, dtype=dtype, device=device)
    handle = symm_mem.rendezvous(tensor, _world())
    return tensor, list(handle.buffer_ptrs)


def _world() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None, "group.py's join comes first"
    return dist.group.WORLD
