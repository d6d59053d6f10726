"""Trees whose children are drawn: without replacement, kept by scores that tell nothing of their tokens."""

from __future__ import annotations

import math

import pytest
import torch
from toy.frequencies import p_value

from specbench.kernels import tree_draw as module
from specbench.kernels.buffers import Trees
from specbench.kernels.gumbel_noise import add_gumbel_ref
from specbench.kernels.reject_drafts import reject_drafts, tree_children
from specbench.kernels.tree_build import build_tree
from specbench.kernels.tree_draw import draw_level, pass_rows
from specbench.kernels.tree_expand import expand_tree, new_tree_pool

NUM, VOCAB, TOPK, DEPTH, SIZE = 12_000, 6, 3, 2, 6  # 5 of the 12 candidates are kept
CPU = torch.device("cpu")


def tables(seed: int, sharpness: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the first token [V], and of the second by the first [V, V]."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(n, VOCAB, generator=generator) * sharpness for n in (1, VOCAB))
    return first[0].softmax(0), second.softmax(1)


P, Q = tables(3, 1.2), tables(4, 1.2)


def random_rows(num: int) -> torch.Tensor:
    return torch.ones(num, dtype=torch.bool)


def drawn_trees(lane_of_row=lambda row: 2 + row):
    """Trees of two levels as the drafter grows them: nodes' tokens, parents and the rows that they were drawn from."""
    pool, seed = new_tree_pool(NUM, TOPK, DEPTH, CPU), torch.arange(NUM)
    nought = torch.zeros(NUM, dtype=torch.int64)
    draw_level(Q[0].log().expand(NUM, -1), None, pool, 1, random_rows(NUM), (seed, nought + (lane_of_row(0) << 24)))
    second = Q[1].log()[pool.ids_Bk.view(-1)]
    lane = torch.tensor([lane_of_row(1 + row) << 24 for row in range(TOPK)]).repeat(NUM)
    draw_level(second, None, pool, 2, random_rows(NUM * TOPK), (seed.repeat_interleave(TOPK), lane))
    trees = Trees(
        parent_SD=torch.zeros(NUM, SIZE, dtype=torch.int32),
        depth_SD=torch.zeros(NUM, SIZE, dtype=torch.int32),
        mask_SDD=torch.zeros(NUM, SIZE, SIZE, dtype=torch.bool),
    )
    drafts = torch.zeros(NUM, SIZE - 1, dtype=torch.int64)
    build_tree(torch.arange(NUM), pool, drafts, trees)
    return pool, drafts, trees


def spoken(drafts, trees) -> torch.Tensor:
    """The first two tokens [NUM, 2] of each request, one row after the other."""
    generator, parent = torch.Generator().manual_seed(5), trees.parent_SD[:, 1:]
    children, index = tree_children(drafts, parent, TOPK)
    node, said, on_tree = torch.zeros(NUM, dtype=torch.int64), [], torch.ones(NUM, dtype=torch.bool)
    for place in range(2):
        at = node[:, None, None].expand(-1, 1, TOPK)
        draft = children.gather(1, at)[:, 0].masked_fill(~on_tree[:, None], -1)
        p, q = (x[0].expand(NUM, -1) if place == 0 else x[1][said[0]] for x in (P, Q))
        taken, left = reject_drafts(p, q, draft, torch.rand(NUM, TOPK, generator=generator))
        token = torch.where(taken >= 0, taken, torch.multinomial(left, 1, generator=generator)[:, 0])
        chosen = (draft == token[:, None]).float().argmax(1)
        node = index.gather(1, at)[:, 0].gather(1, chosen[:, None])[:, 0] + 1
        on_tree &= taken >= 0
        said.append(token)
    return torch.stack(said, 1)


def pair_p_value(said) -> float:
    counts = torch.bincount(said[:, 0] * VOCAB + said[:, 1], minlength=VOCAB * VOCAB)
    return p_value(counts, (P[0][:, None] * P[1]).flatten())


def test_c48_pairs_said_behind_drawn_trees_have_the_targets_distribution():
    assert pair_p_value(spoken(*drawn_trees()[1:])) > 1e-3


def test_first_children_have_q_and_second_ones_q_without_the_first():
    pool, _, _ = drawn_trees()
    first, second = pool.token_BC[:, 0], pool.token_BC[:, 1]
    assert p_value(torch.bincount(first, minlength=VOCAB), Q[0]) > 1e-3
    rest = Q[0].expand(VOCAB, -1).clone().fill_diagonal_(0)
    joint = Q[0][:, None] * rest / rest.sum(1, keepdim=True)
    assert p_value(torch.bincount(first * VOCAB + second, minlength=VOCAB * VOCAB), joint.flatten()) > 1e-3


def test_scores_fall_from_parent_to_child_and_from_sibling_to_sibling():
    pool, _, trees = drawn_trees()
    level_2 = pool.score_BC[:, TOPK:].view(NUM, TOPK, TOPK)
    parent = pool.score_BC.gather(1, pool.node_Bk.long())
    assert torch.equal(level_2[:, :, 0], parent), "the best child scores what its parent does"
    assert (level_2.diff(dim=2) <= 0).all() and (pool.score_BC[:, :TOPK].diff(dim=1) <= 0).all()
    assert (pool.score_BC[:, 0] == 0).all()
    assert len(trees.parent_SD.unique(dim=0)) == 4, "trees of several shapes are kept"


def test_rows_that_nodes_were_drawn_from():
    pool, drafts, trees = drawn_trees()
    row = pass_rows(pool, SIZE - 1)
    assert ((row == 0) == (trees.parent_SD[:, 1:] == 0)).all()
    parent_token = torch.cat([torch.zeros_like(drafts[:, :1]), drafts], 1).gather(1, trees.parent_SD[:, 1:].long())
    of_level_2 = row > 0
    told = pool.ids_Bk.gather(1, (row - 1).clamp(min=0))
    assert of_level_2.any() and torch.equal(told[of_level_2], parent_token[of_level_2])


def test_tokens_without_mass_are_no_drafts():
    """One possible token behind the root: one path, and nothing else."""
    pool = new_tree_pool(1, TOPK, DEPTH, CPU)
    logits = torch.full((1, VOCAB), -math.inf)
    logits[0, 4] = 0.0
    draw_level(logits, None, pool, 1, random_rows(1), (torch.tensor([1]), torch.tensor([1])))
    assert pool.token_BC[0, :TOPK].tolist() == [4, -1, -1] and pool.ids_Bk.tolist() == [[4, 0, 0]]
    keys = torch.tensor([1, 2, 3])
    draw_level(torch.zeros(TOPK, VOCAB), None, pool, 2, random_rows(TOPK), (keys, keys))
    assert (pool.token_BC[0, 2 * TOPK :] == -1).all(), "children of no draft are none"
    assert (pool.token_BC[0, TOPK : 2 * TOPK] >= 0).all()
    assert (pool.token_BC == -1).eq(pool.score_BC == -math.inf).all()


@pytest.mark.parametrize("is_mapped", [False, True])
def test_greedy_rows_grow_the_greedy_tree(is_mapped):
    generator = torch.Generator().manual_seed(0)
    d2t = torch.arange(40) * 3 if is_mapped else None
    pools = [new_tree_pool(4, TOPK, DEPTH, CPU) for _ in range(2)]
    for level, rows in ((1, 4), (2, 4 * TOPK)):
        logits = torch.randn(rows, 40, generator=generator).bfloat16()
        expand_tree(logits, d2t, pools[0], level)
        is_random = torch.arange(rows) < rows // 2  # the first two requests
        keys = torch.arange(rows)
        draw_level(logits.float(), d2t, pools[1], level, is_random, (keys, keys))
        for pool in pools[:1]:  # both continue alike, whatever the random ones drew
            assert torch.equal(pool.node_Bk[2:], pools[1].node_Bk[2:])
    for name in ("score_BC", "token_BC", "parent_BC", "ids_Bk", "row_Bk"):
        assert torch.equal(getattr(pools[0], name)[2:], getattr(pools[1], name)[2:]), name
        if name == "token_BC":
            assert not torch.equal(pools[0].token_BC[:2], pools[1].token_BC[:2])


def _likeliest_kept(patch):
    """Scores that are probabilities, as a greedy tree's: what is kept tells of the tokens."""

    def below(noisy, parent):
        plain = noisy - below.noise.gather(1, below.ids)
        return plain + parent

    def keep(logits, *keys):
        noisy = add_gumbel_ref(logits, *keys)
        below.noise, below.ids = noisy - logits, noisy.topk(TOPK).indices
        return noisy

    patch.setattr(module, "add_gumbel", keep)
    patch.setattr(module, "_below_parent", below)


FAULTS = {
    "the likeliest of the drawn are kept": _likeliest_kept,
    "the likeliest are drawn": lambda patch: patch.setattr(module, "add_gumbel", lambda logits, *keys: logits.clone()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(monkeypatch, fault):
    FAULTS[fault](monkeypatch)
    assert pair_p_value(spoken(*drawn_trees()[1:])) < 1e-5
