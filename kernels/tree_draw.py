"""Growth of a draft tree whose children are drawn: stochastic beam search (Kool et al. 2019, arXiv 1903.06059).

A random row's children are drawn from q without replacement, as the largest of log q + Gumbel noise. Its path's score
is that noise told that the best child scores what its parent does: a child never scores above its parent, and the k
best paths of all are paths drawn without replacement. Given the siblings before it, a token does not depend on its own
score; so levels and the tree may keep what scores best, as for greedy rows, and acceptance stays exact (the argument:
docs/strategies.md). What scores best is always the first of the siblings.
Legend: B requests, k children a node and rows a level (topk), R rows of a pass, V draft vocabulary, K drafts.
"""

import math

import torch
from torch import Tensor

from specbench.kernels.gumbel_noise import add_gumbel
from specbench.kernels.top_k import top_k
from specbench.kernels.tree_build import chosen_candidates
from specbench.kernels.tree_expand import TreePool, grow_tree


def draw_level(
    logits_RV: Tensor, d2t_V: Tensor | None, pool: TreePool, level: int, is_random_R: Tensor, key: tuple[Tensor, Tensor]
) -> None:
    """As `expand_tree`, which it is for rows that are not random. Those that are (bool) bring log q; `key`: seed and
    position of each row's noise. Tokens that q leaves out become no draft (-1) with a score of -inf."""
    num_requests, k = pool.ids_Bk.shape
    noisy_RV = add_gumbel(logits_RV, is_random_R, *key)
    score_Rk, ids_Rk = top_k(noisy_RV, k)
    parent_R1 = torch.zeros_like(score_Rk[:, :1])
    if level > 1:
        parent_R1 = pool.score_BC.gather(1, pool.node_Bk.long()).view(-1, 1)
    num_possible_R1 = (noisy_RV > -math.inf).sum(dim=1, keepdim=True)
    is_none_Rk = torch.arange(k, device=ids_Rk.device) >= num_possible_R1
    drawn_Rk = _below_parent(noisy_RV.gather(1, ids_Rk), parent_R1).masked_fill_(is_none_Rk, -math.inf)
    score_Rk = torch.where(is_random_R.unsqueeze(1), drawn_Rk, score_Rk + parent_R1)
    token_Rk = ids_Rk if d2t_V is None else ids_Rk + d2t_V[ids_Rk]
    token_Rk = token_Rk.masked_fill(score_Rk == -math.inf, -1)
    grow_tree(pool, level, score_Rk.view(num_requests, -1), token_Rk.view(num_requests, -1))
    pool.ids_Bk.clamp_(min=0)  # a row of no draft runs as token 0; its children score -inf


def pass_rows(pool: TreePool, num_drafts: int) -> Tensor:
    """int64 [B, K]: the drafter's row that each node of the built tree is a child of, counted over the levels: 0 the
    first pass' row, then k of each level."""
    return chosen_candidates(pool, num_drafts) // pool.topk


def _below_parent(noisy_Rk: Tensor, parent_R1: Tensor) -> Tensor:
    """Scores of children whose best is known to score what its parent does; `noisy_Rk` descends."""
    gap_Rk = torch.log(-torch.expm1(noisy_Rk - noisy_Rk[:, :1]))  # -inf for the first
    below_Rk = parent_R1 - noisy_Rk + gap_Rk
    return parent_R1 - below_Rk.clamp(min=0) - torch.log1p(torch.exp(-below_Rk.abs()))
