from copy import deepcopy

import pytest
import torch
from kernels.slots import assert_same_bits, poisoned_outcome, random_slots, rows_of
from kernels.test_accept_chain import oracle as chain_oracle
from kernels.test_accept_chain import run as run_chain
from kernels.trees import random_trees

from specbench.kernels.accept_chain import accept_chain_ref
from specbench.kernels.accept_tree import accept_tree, accept_tree_ref, accept_tree_triton
from specbench.kernels.buffers import Slots, Trees

OPS = [accept_tree_ref, accept_tree_triton, accept_tree]


def walk(slots: Slots, trees: Trees, slot: int, sampled: list[int], forced: int | None, most: int) -> list[int]:
    """The accepted path from the root, node by node."""
    drafts, parents = [-1, *slots.drafts_SK[slot].tolist()], trees.parent_SD[slot].tolist()
    path = [0]
    while len(path) <= (most if forced is None else min(most, forced)):
        children = [i for i in range(1, len(drafts)) if drafts[i] >= 0 and parents[i] == path[-1]]
        if forced is None:
            children = [i for i in children if drafts[i] == sampled[path[-1]]]
        if not children:
            break
        path.append(children[0])
    return path


def oracle(slots, trees, slot, sampled, num_drafts, forced, width):
    """One request: commits into `slots` as a chain of the path's tokens would; its status row and path."""
    if num_drafts < 0 or int(slots.done_S[slot]) != 0:
        row, _ = chain_oracle(slots, slot, [0] * width, num_drafts, None)
        return row, [0] * width
    path = walk(slots, trees, slot, sampled, forced, width - 1) if num_drafts > 0 else [0]
    a = len(path) - 1
    exists = [i for i in range(1, len(sampled)) if num_drafts > 0 and slots.drafts_SK[slot, i - 1] >= 0]
    tokens = [int(slots.drafts_SK[slot, i - 1]) for i in path[1:]] + [sampled[path[-1]]]
    if forced is None:
        assert tokens == [sampled[i] for i in path]
    saved, slots.drafts_SK = slots.drafts_SK, slots.drafts_SK.clone()
    slots.drafts_SK[slot] = -1
    slots.drafts_SK[slot, :a] = torch.tensor(tokens[:a], dtype=torch.int64)
    row, accepted = chain_oracle(slots, slot, tokens + [-9] * (width - 1 - a), a, None)
    slots.drafts_SK = saved
    assert accepted == a
    row[4:6] = [len(exists), max((int(trees.depth_SD[slot, i]) for i in exists), default=0)]
    return row, path + [path[-1]] * (width - len(path))


def run(op, slots: Slots, sampled, slot_of, num_drafts, base_row, forced, width):
    device, requests = slots.n_S.device, len(slot_of)
    rows = rows_of(slots, slot_of, [sampled.shape[1]] * requests, num_drafts, base_row)
    outcome = poisoned_outcome(requests, width, device, of_trees=True)
    forced_B = None if forced is None else torch.tensor(forced, device=device, dtype=torch.int32)
    op(sampled.to(device), rows, slots, outcome, forced_B)
    return outcome.status_BX.tolist(), outcome.sample_row_B.tolist(), outcome.path_BW.tolist()


def likely_samples(slots: Slots, trees: Trees, slot_of: list[int], size: int, generator) -> torch.Tensor:
    """Random tokens, but mostly one of the node's own children's drafts."""
    sampled = torch.randint(0, 6, (len(slot_of), size), generator=generator)
    for request, slot in enumerate(slot_of):
        for node in range(1, size):
            parent = int(trees.parent_SD[slot, node])
            if parent >= 0 and torch.rand((), generator=generator) < 0.6:
                sampled[request, parent] = slots.drafts_SK[slot, node - 1]
    return sampled


@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize(("size", "depth"), [(2, 1), (8, 3), (13, 5)])
@pytest.mark.parametrize("op", OPS)
def test_against_node_by_node(op, size, depth, is_forced, device):
    seen = set()
    width = depth + 1
    for seed in range(20):
        generator = torch.Generator().manual_seed(1000 + seed)
        slots = random_slots(seed=seed, depth=size - 1, device=device, length=size + 40)
        trees = random_trees(seed=seed, num_slots=7, size=size, depth=depth, drafts_SK=slots.drafts_SK)
        slots.tree = trees
        slot_of = torch.randperm(6, generator=generator).tolist()[:5] + [6, 6]  # two dummies
        slots.done_S[slot_of[4]] = 2
        sampled = likely_samples(slots, trees, slot_of, size, generator)
        num_drafts = [size - 1, size - 1, 0, -1, size - 1, size - 1, size - 1]
        forced = torch.randint(0, depth + 2, (7,), generator=generator).tolist() if is_forced else None
        expected_slots = deepcopy(slots)
        base_row = [10 * request for request in range(7)]
        status, sample_row, path = run(op, slots, sampled, slot_of, num_drafts, base_row, forced, width)
        for request, slot in enumerate(slot_of):
            force = forced[request] if forced is not None else None
            expected = oracle(expected_slots, trees, slot, sampled[request].tolist(), num_drafts[request], force, width)
            assert (status[request], path[request]) == expected
            assert sample_row[request] == base_row[request] + expected[0][0]
            seen.add((expected[0][0], expected[0][2]))
        assert_same_bits(slots, expected_slots)
    assert {done for _, done in seen} == {0, 1, 2} and len({accepted for accepted, _ in seen}) >= min(depth + 1, 4)


@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_a_tree_without_branches_is_a_chain(op, is_forced, device):
    size = 5
    node = torch.arange(size, dtype=torch.int32, device=device)
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        slots = random_slots(seed=seed, depth=size - 1, device=device)
        slots.drafts_SK.clamp_(min=0)
        slots.tree = Trees(
            parent_SD=(node - 1).repeat(7, 1),
            depth_SD=node.repeat(7, 1),
            mask_SDD=torch.ones(7, size, size, dtype=torch.bool, device=device).tril(),
        )
        slot_of, num_drafts, base_row = [3, 0, 5, 6], [4, 4, 0, 4], [0, 5, 10, 15]
        sampled = torch.randint(0, 2, (4, size), generator=generator)
        forced = [2, 9, 1, 0] if is_forced else None
        as_chain = deepcopy(slots)
        status, sample_row, path = run(op, slots, sampled, slot_of, num_drafts, base_row, forced, size)
        expected = run_chain(accept_chain_ref, as_chain, sampled, slot_of, num_drafts, base_row, forced)
        assert (status, sample_row) == expected
        assert [row[: s[0] + 1] for row, s in zip(path, status, strict=True)] == [list(range(s[0] + 1)) for s in status]
        assert torch.equal(slots.tokens_SL, as_chain.tokens_SL)


@pytest.mark.parametrize("op", OPS)
def test_written_out_tree(op, device):
    """Root -> 1 (token 1), 2 (token 2); 1 -> 3 (token 5); 2 -> 4 (token 3), 5 (token 5); 5 -> 6 (token 0)."""
    slots = random_slots(seed=0, depth=6, device=device, num_slots=2)
    slots.n_S[0], slots.limit_S[0], slots.stop_SE[:] = 5, 40, -1
    slots.drafts_SK[0] = torch.tensor([1, 2, 5, 3, 5, 0])
    parent = torch.tensor([[-1, 0, 0, 1, 2, 2, 5]] * 2, dtype=torch.int32, device=device)
    depth = torch.tensor([[0, 1, 1, 2, 2, 2, 3]] * 2, dtype=torch.int32, device=device)
    slots.tree = Trees(
        parent_SD=parent, depth_SD=depth, mask_SDD=torch.eye(7, dtype=torch.bool, device=device).repeat(2, 1, 1)
    )
    sampled = torch.tensor([[2, 5, 5, 4, 4, 3, 4]])
    status, sample_row, path = run(op, slots, sampled, [0], [6], [8], None, 4)
    assert status == [[2, 3, 0, 8, 6, 3, 2, 5, 3, -1]]
    assert path == [[0, 2, 5, 5]] and sample_row == [10]
    assert slots.tokens_SL[0, 6:9].tolist() == [2, 5, 3]
