"""The processes that share the matrices of one model, one per GPU, and their communication during a pass.

Shapes: T rows, H hidden, V vocabulary, R logit rows. A column-parallel product needs no communication; a row-parallel
one is a sum over the group; logits are gathered, so that every rank draws the same token from the same numbers, with
the same seeds. Nothing here waits for the host: all of it can be captured, in the same order on every rank.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from specbench.harness.engines.native.models.all_reduce import AllReduce, Sum

Decision = TypeVar("Decision", bool, int)


class Group:
    """`rank` of `size`. A size of 1 adds no operation."""

    def __init__(
        self,
        rank: int,
        size: int,
        all_reduce: Sum,
        *,
        splits_drafter: bool = True,
        host: dist.ProcessGroup | None = None,
    ):
        """`all_reduce` sums over the group and may write into its argument. Without `splits_drafter` each rank has the
        whole drafter. `host`: for data that passes between host memories; None: the default group can do it."""
        self.rank, self.size, self.all_reduce = rank, size, all_reduce
        self.num_agreements, self._host = 0, host
        self.of_drafter = self if splits_drafter else ALONE

    def agree(self, value: Decision) -> Decision:
        """Rank 0's value, on every rank: for a decision that depends on the clock. The host waits; never inside a
        round."""
        if self.size == 1:
            return value
        self.num_agreements += 1
        decision = torch.tensor(value)
        dist.broadcast(decision, 0, group=self._host)
        return type(value)(decision.item())

    def described(self) -> dict[str, str]:
        """The topology, for the record; empty for one rank."""
        if self.size == 1:
            return {}
        return {
            "tensor_parallel_size": str(self.size),
            "draft_tensor_parallel_size": str(self.of_drafter.size),
            "all_reduce": str(self.all_reduce),
        }

    def add_rms_norm(self, part_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
        """`residual += sum of all parts` in place, then its norm: the end of attention and of the MLP."""
        return self.all_reduce.add_rms_norm(part_TH, residual_TH, weight_H, eps)

    def share(self, length: int) -> slice:
        """This rank's part of so many rows or columns."""
        part = length // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def embed(self, ids_T: Tensor, embed_VH: Tensor) -> Tensor:
        """[T, H]; `embed_VH` has this rank's part of the vocabulary."""
        if self.size == 1:
            return F.embedding(ids_T, embed_VH)
        own_T = ids_T - self.rank * embed_VH.shape[0]
        near_T = own_T.clamp(0, embed_VH.shape[0] - 1)
        return self.all_reduce(F.embedding(near_T, embed_VH).mul_((near_T == own_T)[:, None]))

    def gather(self, x_RV: Tensor) -> Tensor:
        """Columns of all ranks side by side, with the same numbers on each rank."""
        parts_NRV = x_RV.new_empty(self.size, *x_RV.shape)
        dist.all_gather_into_tensor(parts_NRV.flatten(0, 1), x_RV.contiguous())
        return parts_NRV.transpose(0, 1).reshape(x_RV.shape[0], -1)


ALONE = Group(0, 1, Sum())


def join(
    rank: int,
    size: int,
    meeting: Path,
    device: torch.device,
    dtype: torch.dtype,
    method: str,
    *,
    splits_drafter: bool = True,
) -> Group:
    """Waits until all ranks have met through the file `meeting`. Called once in a process."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    device_id = torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" else None
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=size, device_id=device_id)
    host = dist.new_group(backend="gloo") if backend == "nccl" else None
    return Group(rank, size, AllReduce(method, size, device, dtype), splits_drafter=splits_drafter, host=host)
