import pytest
import torch
from kernels.slots import random_slots

from specbench.kernels.ngram import ngram_propose, ngram_propose_ref, ngram_propose_triton

OPS = [ngram_propose_ref, ngram_propose_triton, ngram_propose]


def brute_force(context: list[int], min_n: int, max_n: int, depth: int) -> list[int]:
    for size in range(min(max_n, len(context)), min_n - 1, -1):
        suffix = context[len(context) - size :]
        for start in range(len(context) - size):
            if context[start : start + size] == suffix:
                follow = context[start + size : start + size + depth]
                return follow + [-1] * (depth - len(follow))
    return [-1] * depth


def propose(op, contexts, min_n, max_n, depth, device, width=None):
    width = width or max(len(context) for context in contexts)
    # What lies behind a context must never be read: it would match everything.
    tokens = torch.full((len(contexts) + 1, width), contexts[0][-1])
    for slot, context in enumerate(contexts):
        tokens[slot, : len(context)] = torch.tensor(context)
    n = torch.tensor([len(context) - 1 for context in contexts] + [0], dtype=torch.int32)
    drafts = torch.full((len(contexts) + 1, depth), -77)
    slots = random_slots(seed=0, depth=depth, device=device)
    slots.drafts_SK, slots.tokens_SL, slots.n_S = drafts.to(device), tokens.to(device), n.to(device)
    order = list(range(len(contexts)))[::-1]
    op(torch.tensor(order, device=device), slots, min_n, max_n)
    drafts = slots.drafts_SK
    assert (drafts[-1] == -77).all()
    return drafts[:-1].tolist()


@pytest.mark.parametrize("min_n,max_n", [(1, 1), (1, 3), (2, 4), (3, 3), (1, 60)])
@pytest.mark.parametrize("depth", [1, 3, 5])
@pytest.mark.parametrize("op", OPS)
def test_against_brute_force(op, min_n, max_n, depth, device):
    generator = torch.Generator().manual_seed(min_n * 100 + max_n)
    contexts = []
    for length in [1, 2, 3, 4, 7, 12, 20, 33, 50]:
        for vocab in (2, 4):
            contexts.append(torch.randint(0, vocab, (length,), generator=generator).tolist())
    expected = [brute_force(context, min_n, max_n, depth) for context in contexts]
    assert propose(op, contexts, min_n, max_n, depth, device, width=57) == expected
    assert any(-1 in row for row in expected) and any(row[0] >= 0 for row in expected)


@pytest.mark.parametrize(
    "context,expected",
    [
        ([1, 2, 3, 9, 1, 2, 3], [9, 1, 2]),
        ([1, 2, 7, 1, 2, 8, 1, 2], [7, 1, 2]),  # ties: the earliest
        ([2, 5, 1, 2, 6, 1, 2], [6, 1, 2]),  # the longer match wins although a shorter one is earlier
        ([4, 4, 4], [4, -1, -1]),  # overlap with the suffix itself
        ([1, 2, 3], [-1, -1, -1]),
        ([5], [-1, -1, -1]),
    ],
)
@pytest.mark.parametrize("op", OPS)
def test_written_out_cases(op, context, expected, device):
    assert propose(op, [context], 1, 3, 3, device) == [expected]


@pytest.mark.parametrize("op", OPS)
def test_long_contexts(op, device):
    generator = torch.Generator().manual_seed(3)
    contexts = [torch.randint(0, 12, (length,), generator=generator).tolist() for length in (1025, 2500, 30)]
    expected = [brute_force(context, 2, 4, 4) for context in contexts]
    assert propose(op, contexts, 2, 4, 4, device, width=3000) == expected


def test_refuses_impossible_lengths(device):
    with pytest.raises(ValueError, match="min_n 3 and max_n 2"):
        propose(ngram_propose, [[1, 2]], 3, 2, 1, device)
