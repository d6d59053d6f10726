"""The shape of a draft tree, and the trees of all slots on the device.

Legend: S slots, D nodes of a tree with its root. Node 0 is the root, the pending token; the tokens of nodes 1 .. D-1
are in the state's drafts_SK (K = D - 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.kernels.buffers import Trees

NO_NODE = -2  # parent of a node that does not exist


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeShape:
    """EAGLE-2's parameters: D nodes including the root, S levels below it, k children per node and k nodes kept per
    level."""

    num_nodes: int
    depth: int
    topk: int

    @property
    def reach(self) -> int:
        """Positions from n on that a round may write keys to, in the target's cache or the drafter's.

        The target verifies D rows at n; the drafter's first pass covers S + 1 positions. If all of those are accepted,
        its later passes begin after them: S - 1 passes with k rows each.
        """
        return max(self.num_nodes, self.depth + 1 + (self.depth - 1) * self.topk)


class TreeState(Trees):
    """Each slot's tree, as the verifying pass and acceptance read it."""

    def __init__(self, num_slots: int, shape: TreeShape, device: torch.device):
        size = shape.num_nodes
        super().__init__(
            parent_SD=torch.empty(num_slots, size, dtype=torch.int32, device=device),
            depth_SD=torch.empty(num_slots, size, dtype=torch.int32, device=device),
            mask_SDD=torch.empty(num_slots, size, size, dtype=torch.bool, device=device),
        )
        self.shape = shape
        self._root_only: tuple[Tensor, Tensor, Tensor] = _root_only(size, device)
        for slot in range(num_slots):
            self.reset(slot)

    def reset(self, slot: int) -> None:
        """Leaves only the root in the slot; every row still sees itself."""
        parent_D, depth_D, mask_DD = self._root_only
        self.parent_SD[slot].copy_(parent_D)
        self.depth_SD[slot].copy_(depth_D)
        self.mask_SDD[slot].copy_(mask_DD)


def _root_only(size: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    parent_D = torch.full((size,), NO_NODE, dtype=torch.int32)
    parent_D[0] = -1
    depth_D = torch.zeros(size, dtype=torch.int32)
    return parent_D.to(device), depth_D.to(device), torch.eye(size, dtype=torch.bool, device=device)
