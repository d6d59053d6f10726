"""Rejection sampling of drafts that were drawn themselves, exact for chains and trees: plain torch without a host read.

A draft x that was drawn from q is accepted with probability min(1, p(x) / q(x)); after a rejection the token is drawn
from the residual, max(p - q, 0) normalised (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv
2302.01318). Siblings of a tree were drawn from q without replacement: each is judged with the residual that the one
before it left, and with q without the tokens before it (Jeon et al. 2024, arXiv 2402.14160). A rejected token has no
mass in the residual, so that a row's token equals a draft only where that draft is accepted: what `accept_chain` and
`accept_tree` go by.
Legend: R verified rows, V vocabulary, C most drafts behind one row (1 in a chain), B requests, D nodes of a tree with
its root, K drafts.
"""

import torch
from torch import Tensor


def reject_drafts(p_RV: Tensor, q_RV: Tensor, draft_RC: Tensor, coin_RC: Tensor) -> tuple[Tensor, Tensor]:
    """The accepted draft of each row (int64 [R], -1: none) and what the token is drawn from if none is.

    `p_RV`, `q_RV`: probabilities, fp32. `draft_RC` (int64): drafts behind the row in the order drawn, -1 where there is
    none. `coin_RC`: uniform numbers, one a draft.
    """
    taken_R1 = torch.full_like(draft_RC[:, :1], -1)
    for place in range(draft_RC.shape[1]):
        draft_R1 = draft_RC[:, place : place + 1]
        at_R1 = draft_R1.clamp(min=0)
        is_open_R1 = (draft_R1 >= 0) & (taken_R1 < 0)
        accepts_R1 = is_open_R1 & (coin_RC[:, place : place + 1] * q_RV.gather(1, at_R1) < p_RV.gather(1, at_R1))
        rejects_R1 = is_open_R1 & ~accepts_R1
        taken_R1 = torch.where(accepts_R1, draft_R1, taken_R1)
        left_RV = (p_RV - q_RV).clamp_(min=0)
        mass_R1 = left_RV.sum(dim=1, keepdim=True)
        # Where p and q differ by rounding alone nothing may be left.
        p_RV = torch.where(rejects_R1 & (mass_R1 > 0), left_RV / mass_R1, p_RV)
        if place + 1 < draft_RC.shape[1]:
            rest_RV = q_RV.scatter(1, at_R1, 0.0)
            q_RV = torch.where(rejects_R1, rest_RV / rest_RV.sum(dim=1, keepdim=True), q_RV)
    return taken_R1.squeeze(1), p_RV


def chain_children(drafts_BK: Tensor) -> Tensor:
    """int64 [B, K+1, 1]: the draft behind each row of a chain; behind the last none."""
    return torch.nn.functional.pad(drafts_BK, (0, 1), value=-1).unsqueeze(2)


def tree_children(drafts_BK: Tensor, parent_BK: Tensor, topk: int) -> tuple[Tensor, Tensor]:
    """Drafts that follow each node in the order of their indices, int64 [B, D, topk], -1: none; and the index of each
    in K (0 where there is none). `parent_BK`: of nodes 1 .. D-1; a draft of -1 is not a node."""
    num_requests, num_drafts = drafts_BK.shape
    exists_BK = drafts_BK >= 0
    is_sibling_BKK = (parent_BK.unsqueeze(2) == parent_BK.unsqueeze(1)) & exists_BK.unsqueeze(1)
    place_BK = is_sibling_BKK.tril(-1).sum(dim=2)
    size = (num_drafts + 1) * topk
    column_BK = torch.where(exists_BK, parent_BK.long() * topk + place_BK, size)  # the last column takes the rest
    token_BX = drafts_BK.new_full((num_requests, size + 1), -1).scatter_(1, column_BK, drafts_BK)
    index_BX = torch.zeros_like(token_BX).scatter_(
        1, column_BK, torch.arange(num_drafts, device=drafts_BK.device).expand_as(drafts_BK)
    )
    shape = (num_requests, num_drafts + 1, topk)
    return token_BX[:, :size].view(shape), index_BX[:, :size].view(shape)
