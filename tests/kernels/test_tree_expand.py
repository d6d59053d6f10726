"""The dynamic tree against a brute-force builder: candidates, frontier, the rows each row sees, the built tree."""

from __future__ import annotations

import pytest
import torch
from kernels.tree_oracle import Node, OracleTree, arrays, grow

from specbench.kernels.buffers import Trees
from specbench.kernels.tree_build import build_tree, build_tree_ref, build_tree_triton
from specbench.kernels.tree_expand import (
    TreePool,
    expand_tree,
    expand_tree_ref,
    expand_tree_triton,
    new_tree_pool,
    num_candidates,
)

VOCAB = 50
OPS = {
    "ref": (expand_tree_ref, build_tree_ref),
    "triton": (expand_tree_triton, build_tree_triton),
    "dispatched": (expand_tree, build_tree),
}
SHAPES = [(1, 1), (1, 4), (2, 3), (3, 4), (8, 2), (4, 1), (8, 4)]  # topk, depth


class ScriptedDrafter:
    """Logits that depend on the whole path, so that a row taken for another is noticed."""

    def __init__(self, seed: int, kind: str = "spread"):
        self.seed = seed
        self.kind = kind

    def logits(self, path: tuple[int, ...]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(
            (self.seed + 1) * 1_000_003 + sum((i + 1) * 7919 ** (i + 1) * (t + 1) for i, t in enumerate(path)) % 2**31
        )
        z_V = torch.randn(VOCAB, generator=generator) * 4
        if self.kind == "certain":  # one token has all the mass: its child's score equals its own
            z_V = torch.full((VOCAB,), -1.0e9).index_fill_(0, z_V.argmax(), 0.0)
        elif self.kind == "equal":
            z_V = torch.zeros(VOCAB)
        return z_V

    def of_node(self, node: Node | None) -> list[float]:
        return self.logits(tuple(n.token for n in node.path) if node else ()).tolist()


def run(op, drafters: list[ScriptedDrafter], topk: int, depth: int, d2t, device) -> TreePool:
    """All levels; what the drafter knows of a row is what its state says: the path it was given."""
    requests = len(drafters)
    pool = new_tree_pool(requests, topk, depth, device)
    states: list[tuple[int, ...]] = [()] * requests
    offset = 0 if d2t is None else d2t.cpu()
    for level in range(1, depth + 1):
        rows = len(states) // requests
        logits = torch.stack([drafters[row // rows].logits(path) for row, path in enumerate(states)])
        op(logits.to(device), d2t, pool, level)
        if level < depth:
            flat_ids = pool.ids_Bk.flatten().cpu()
            if d2t is not None:
                own = torch.arange(VOCAB) + offset
                flat_ids = (own.unsqueeze(0) == flat_ids.unsqueeze(1)).long().argmax(1)
            parents = pool.row_Bk.flatten().tolist()
            states = [(*states[parent], token) for parent, token in zip(parents, flat_ids.tolist(), strict=True)]
    return pool


def oracles(drafters: list[ScriptedDrafter], topk: int, depth: int) -> list[OracleTree]:
    return [grow(topk, depth, drafter.of_node) for drafter in drafters]


def offsets(device) -> torch.Tensor:
    ids = torch.randperm(200, generator=torch.Generator().manual_seed(1))[:VOCAB].sort().values
    return (ids - torch.arange(VOCAB)).to(device)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(("topk", "depth"), SHAPES)
@pytest.mark.parametrize("op", OPS)
def test_candidates_and_frontiers(op, topk, depth, mapped, device):
    drafters = [ScriptedDrafter(seed) for seed in range(3)]
    d2t = offsets(device) if mapped else None
    pool = run(OPS[op][0], drafters, topk, depth, d2t, device)
    for b, tree in enumerate(oracles(drafters, topk, depth)):
        assert len(tree.candidates) == num_candidates(topk, depth) == pool.num_candidates
        tokens = [node.token + (int(d2t[node.token]) if d2t is not None else 0) for node in tree.candidates]
        assert pool.token_BC[b].tolist() == tokens
        assert pool.parent_BC[b].tolist() == [-1 if n.parent is None else n.parent.order for n in tree.candidates]
        expected = torch.tensor([node.score for node in tree.candidates])
        torch.testing.assert_close(pool.score_BC[b].cpu(), expected, rtol=1e-5, atol=1e-4)
        if depth > 1:
            assert pool.node_Bk[b].tolist() == [node.order for node in tree.frontiers[-1]]


@pytest.mark.parametrize(("topk", "depth"), [(2, 5), (3, 4), (8, 4)])
@pytest.mark.parametrize("op", OPS)
def test_rows_see_their_true_ancestors(op, topk, depth, device):
    """Conformance test 50: after re-selection a row's ancestors are other rows than its own of the earlier passes."""
    drafters = [ScriptedDrafter(seed) for seed in range(3)]
    pool = run(OPS[op][0], drafters, topk, depth, None, device)
    crossed = 0
    for b, tree in enumerate(oracles(drafters, topk, depth)):
        for level in range(2, depth + 1):
            mask = pool.masks[level - 2][b]
            assert mask.shape == (topk, (level - 1) * topk)
            for row, node in enumerate(tree.frontiers[level - 2]):
                path = node.path
                columns = [above.row + topk * index for index, above in enumerate(path)]
                assert mask[row].nonzero().flatten().tolist() == sorted(columns)
                crossed += any(above.row != row for above in path)
    assert crossed > 0, "the case never tells true ancestors from a row's own earlier keys"


@pytest.mark.parametrize("kind", ["spread", "certain", "equal"])
@pytest.mark.parametrize(("topk", "depth"), SHAPES)
@pytest.mark.parametrize("op", OPS)
def test_built_trees(op, topk, depth, kind, device):
    """Sizes from a root and one node to every candidate; ties (p = 1, and all equal) keep the tree closed."""
    drafters = [ScriptedDrafter(seed, kind) for seed in range(3)]
    expand, build = OPS[op]
    pool = run(expand, drafters, topk, depth, None, device)
    trees = oracles(drafters, topk, depth)
    slot_B = torch.tensor([4, 0, 2], device=device)
    most = pool.num_candidates + 1
    for size in sorted({2, min(8, most), min(33, most), most}):
        drafts = torch.full((5, size - 1), -7, device=device)
        parent, depths = (torch.full((5, size), -7, dtype=torch.int32, device=device) for _ in range(2))
        mask = torch.zeros(5, size, size, dtype=torch.bool, device=device)
        build(slot_B, pool, drafts, Trees(parent_SD=parent, depth_SD=depths, mask_SDD=mask))
        for slot, tree in zip(slot_B.tolist(), trees, strict=True):
            expected = arrays(tree.nodes(size))
            assert (
                drafts[slot].tolist(),
                parent[slot].tolist(),
                depths[slot].tolist(),
                mask[slot].tolist(),
            ) == expected
        assert (drafts[[1, 3]] == -7).all() and not mask[[1, 3]].any(), "other slots"


@pytest.mark.parametrize("vocab", [3000, 40_000])
def test_large_vocabularies_are_merged_from_parts(vocab, device):
    """Several parts a row, ties between parts, NaN and infinities: the kernels choose what the reference does."""
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(4, vocab, generator=generator)
    logits[0, [5, 1500, 2999]] = 9.0
    logits[1, 7], logits[1, 2000] = torch.nan, torch.inf
    logits[2, 10:] = -torch.inf
    pools = [new_tree_pool(4, 8, 2, device) for _ in range(2)]
    for op, pool in zip((expand_tree_ref, expand_tree_triton), pools, strict=True):
        op(logits.to(device), None, pool, 1)
        op(logits.repeat_interleave(8, 0).to(device), None, pool, 2)
    by_ref, by_triton = pools
    torch.testing.assert_close(by_triton.score_BC, by_ref.score_BC, rtol=1e-5, atol=1e-5)
    assert torch.equal(by_triton.token_BC, by_ref.token_BC)
    assert torch.equal(by_triton.parent_BC, by_ref.parent_BC)
    assert by_ref.token_BC[0, :3].tolist() == [5, 1500, 2999]
    assert not by_ref.score_BC.isnan().any() and (by_ref.score_BC <= 0).all()
