"""Rejection sampling over tables: chains of one draft, siblings drawn without replacement, faults planted.

Many requests at once with a vocabulary small enough to know every probability; seeds are fixed.
"""

from __future__ import annotations

import pytest
import torch
from toy.frequencies import p_value

from specbench.kernels import reject_drafts as module
from specbench.kernels.reject_drafts import chain_children, tree_children
from specbench.kernels.sample import sample_ref

NUM, VOCAB = 20_000, 6
REAL = module.reject_drafts


def table(seed: int, sharpness: float) -> torch.Tensor:
    return torch.softmax(torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * sharpness, 0)


def rows(distribution: torch.Tensor) -> torch.Tensor:
    return distribution.expand(NUM, -1).contiguous()


def drawn_tokens(p, q, num_drafts: int, reject=REAL, noise_of_residual=None) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (int64 [NUM]) and which of them were drafts."""
    generator = torch.Generator().manual_seed(1)
    draft = torch.multinomial(rows(q), num_drafts, generator=generator)  # without replacement, in the order drawn
    coin = torch.rand(NUM, num_drafts, generator=generator)
    taken, left = reject(rows(p), rows(q), draft, coin)
    if noise_of_residual is None:
        residual = torch.multinomial(left, 1, generator=generator).squeeze(1)
    else:
        residual = noise_of_residual(left, coin)
    return torch.where(taken >= 0, taken, residual), taken >= 0


def test_a_table_by_hand():
    """p = (.5, .5, 0), q = (.2, .3, .5): token 1 is accepted always, token 2 never, and leaves (.6, .4, 0)."""
    p, q = torch.tensor([[0.5, 0.5, 0.0]] * 3), torch.tensor([[0.2, 0.3, 0.5]] * 3)
    taken, left = REAL(p, q, torch.tensor([[1], [2], [-1]]), torch.full((3, 1), 0.999))
    assert taken.tolist() == [1, -1, -1]
    torch.testing.assert_close(left[1:], torch.tensor([[0.6, 0.4, 0.0], [0.5, 0.5, 0.0]]))
    # Behind token 2 stands token 0, drawn from (.4, .6, 0): 0.6 of 0.4 is more than any coin.
    taken, left = REAL(p[:1], q[:1], torch.tensor([[2, 0]]), torch.full((1, 2), 0.999))
    assert taken.tolist() == [0]


@pytest.mark.parametrize("num_drafts", [1, 2, 3, 5])
@pytest.mark.parametrize("sharpness", [0.0, 0.7, 2.0])
def test_c13_tokens_have_the_targets_distribution(num_drafts, sharpness):
    p, q = table(3, 1.5), table(4, sharpness)
    tokens, is_draft = drawn_tokens(p, q, num_drafts)
    assert p_value(torch.bincount(tokens, minlength=VOCAB), p) > 1e-3
    if num_drafts == 1:
        wanted = float(torch.minimum(p, q).sum())
        assert abs(float(is_draft.float().mean()) - wanted) < 4 * (wanted * (1 - wanted) / NUM) ** 0.5
    else:  # more drafts, more of them accepted
        assert is_draft.sum() > drawn_tokens(p, q, 1)[1].sum()


def test_c13_a_token_without_mass_in_either_is_never_said():
    p, q = table(3, 1.5), table(4, 1.0)
    p[2], q[1] = 0, 0
    tokens, _ = drawn_tokens(p / p.sum(), q / q.sum(), 3)
    assert p_value(torch.bincount(tokens, minlength=VOCAB), p / p.sum()) > 1e-3


def _no_residual(p, q, draft, coin):
    return REAL(p, q, draft, coin)[0], p


def _first_residual_only(p, q, draft, coin):
    return REAL(p, q, draft, coin)[0], REAL(p, q, draft[:, :1], coin)[1]


def _q_kept_whole(p, q, draft, coin):
    """Siblings judged as if each were drawn from all of q."""
    taken, left = torch.full((NUM,), -1), p
    for place in range(draft.shape[1]):
        here, left = REAL(left, q, draft[:, place : place + 1].masked_fill((taken >= 0)[:, None], -1), coin[:, place:])
        taken = torch.where(here >= 0, here, taken)
    return taken, left


def _same_number(left, coin):
    """The residual's token by the number that rejected the draft."""
    return (left.cumsum(1) < coin[:, :1]).sum(1).clamp(max=VOCAB - 1)


FAULTS = {
    "no residual": (1, dict(reject=_no_residual)),
    "the residual of the first sibling": (3, dict(reject=_first_residual_only)),
    "q not normalised": (1, dict(reject=lambda p, q, draft, coin: REAL(p, q * 1.2, draft, coin))),
    "q never loses a token": (2, dict(reject=_q_kept_whole)),
    "every draft accepted": (1, dict(reject=lambda p, q, draft, coin: REAL(p, q, draft, coin * 0))),
    "one number accepts and chooses": (1, dict(noise_of_residual=_same_number)),
    "one coin for all siblings": (
        3,
        dict(reject=lambda p, q, draft, coin: REAL(p, q, draft, coin[:, :1].expand(-1, 3))),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(fault):
    num_drafts, change = FAULTS[fault]
    p, q = table(3, 1.5), table(4, 1.0)
    tokens, _ = drawn_tokens(p, q, num_drafts, **change)
    assert p_value(torch.bincount(tokens, minlength=VOCAB), p) < 1e-5


def test_no_number_where_p_and_q_are_equal_but_for_rounding():
    p = rows(table(3, 1.5))[:1]
    taken, left = REAL(p, p, torch.tensor([[0, 1]]), torch.ones(1, 2))  # no coin is 1, but near it rounding decides
    assert taken.tolist() == [-1] and torch.isfinite(left).all() and left.sum() > 0.99


def test_children_of_a_chain():
    assert chain_children(torch.tensor([[5, 6], [7, -1]])).tolist() == [[[5], [6], [-1]], [[7], [-1], [-1]]]


def test_children_of_trees_in_the_order_of_nodes():
    """0 has 1 and 3, 1 has 2; node 4 is none."""
    token, index = tree_children(torch.tensor([[50, 60, 70, -1]]), torch.tensor([[0, 1, 0, 2]]), topk=3)
    assert token.tolist() == [[[50, 70, -1], [60, -1, -1], *[[-1, -1, -1]] * 3]]
    assert index[0, :2].tolist() == [[0, 2, 0], [1, 0, 0]]


def test_a_row_without_drafts_draws_from_p():
    p = rows(table(3, 1.5))[:50]
    taken, left = REAL(p, p.flip(1), torch.full((50, 2), -1), torch.zeros(50, 2))
    assert (taken == -1).all() and torch.equal(left, p)
    seed = torch.arange(50)
    again = sample_ref(left.log(), torch.ones(50), seed, seed, False)
    assert torch.equal(again, sample_ref(p.log(), torch.ones(50), seed, seed, False))
