"""Random draft trees in slots, for the tests of the tree kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.kernels.buffers import Trees


def random_trees(*, seed: int, num_slots: int, size: int, depth: int, drafts_SK: Tensor, vocab: int = 6) -> Trees:
    """Trees of any shape up to `depth`; rewrites `drafts_SK` (siblings differ, some nodes are missing).

    Missing nodes have parent -2, depth 0 and see themselves.
    """
    generator = torch.Generator().manual_seed(seed)
    device = drafts_SK.device
    parent = torch.full((num_slots, size), -2, dtype=torch.int32)
    level = torch.zeros(num_slots, size, dtype=torch.int32)
    mask = torch.eye(size, dtype=torch.bool).repeat(num_slots, 1, 1)
    drafts = torch.full((num_slots, size - 1), -1, dtype=torch.int64)
    parent[:, 0] = -1
    for slot in range(num_slots):
        exist = int(torch.randint(size // 2, size + 1, (), generator=generator))
        tokens: dict[int, set[int]] = {}
        for node in range(1, exist):
            # A node has at most as many different children as there are tokens.
            above = [i for i in range(node) if level[slot, i] < depth and len(tokens.get(i, ())) < vocab]
            chosen = above[int(torch.randint(len(above), (), generator=generator))]
            free = sorted(set(range(vocab)) - tokens.setdefault(chosen, set()))
            token = free[int(torch.randint(len(free), (), generator=generator))]
            tokens[chosen].add(token)
            drafts[slot, node - 1] = token
            parent[slot, node], level[slot, node] = chosen, level[slot, chosen] + 1
            mask[slot, node] |= mask[slot, chosen]
    drafts_SK.copy_(drafts)
    return Trees(parent_SD=parent.to(device), depth_SD=level.to(device), mask_SDD=mask.to(device))
