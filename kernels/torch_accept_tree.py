"""`accept_tree` (accept_tree.py) as small torch operations that a CUDA graph can capture; see torch_update.py.

Legend: as in accept_tree.py.
"""

import torch
from torch import Tensor

from specbench.kernels.buffers import Outcome, Rows, Slots
from specbench.kernels.commit import RUNNING, Accepted
from specbench.kernels.torch_commit import commit_in_small_operations


def accept_tree_in_small_operations(
    sampled_BD: Tensor, rows: Rows, slots: Slots, outcome: Outcome, forced_B: Tensor | None = None
) -> None:
    """The walk from the root, one level after the other."""
    assert slots.tree is not None and outcome.path_BW is not None
    slot_B, num_drafts_B, tree, path_BW = rows.slot_B, rows.num_drafts_B, slots.tree, outcome.path_BW
    size = sampled_BD.shape[1]
    active_B = num_drafts_B >= 0
    active_B &= slots.done_S.index_select(0, slot_B) == RUNNING
    draft_BK = slots.drafts_SK.index_select(0, slot_B)[:, : size - 1]
    parent_BK = tree.parent_SD.index_select(0, slot_B)[:, 1:size]
    exists_BK = draft_BK >= 0
    exists_BK &= (num_drafts_B > 0).unsqueeze(1)
    exists_BK &= active_B.unsqueeze(1)
    offered_B = exists_BK.sum(dim=1)
    depth_B = tree.depth_SD.index_select(0, slot_B)[:, 1:size].masked_fill(~exists_BK, 0).amax(dim=1)

    node_K = torch.arange(1, size, device=sampled_BD.device)
    node_B1 = torch.zeros_like(slot_B).unsqueeze(1)
    accepted_B1 = torch.zeros_like(node_B1)
    walking_B1 = torch.ones_like(node_B1, dtype=torch.bool)
    path_BW[:, 0].zero_()
    emitted_BW = torch.empty_like(path_BW)
    for step in range(1, path_BW.shape[1]):
        y_B1 = sampled_BD.gather(1, node_B1)
        is_child_BK = exists_BK & (parent_BK == node_B1)
        if forced_B is None:
            is_child_BK &= draft_BK == y_B1
        else:
            walking_B1 &= (forced_B >= step).unsqueeze(1)
        child_B1 = torch.where(is_child_BK, node_K, size).amin(dim=1, keepdim=True)
        walking_B1 &= child_B1 < size
        node_B1 = torch.where(walking_B1, child_B1, node_B1)
        accepted_B1 += walking_B1
        path_BW[:, step].copy_(node_B1.squeeze(1))
        draft_B1 = draft_BK.gather(1, (node_B1 - 1).clamp_(min=0))
        emitted_BW[:, step - 1].copy_(torch.where(walking_B1, draft_B1, y_B1).squeeze(1))
    emitted_BW[:, -1].copy_(sampled_BD.gather(1, node_B1).squeeze(1))
    accepted_B = accepted_B1.squeeze(1)
    torch.add(rows.base_row_B, accepted_B, out=outcome.sample_row_B)
    found = Accepted(emitted_BW, accepted_B, offered_B, depth_B, active_B)
    commit_in_small_operations(found, slot_B, slots, outcome.status_BX)
