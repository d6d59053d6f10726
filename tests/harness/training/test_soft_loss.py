"""The fused loss against plain autograd, and which rows count."""

from __future__ import annotations

import torch

from specbench.harness.training import soft_loss as losses
from specbench.harness.training.soft_loss import soft_loss
from specbench.harness.training.training_targets import TrainingTargets


def make(num_rows: int = 11, vocab: int = 13, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(num_rows, 8, generator=g).requires_grad_()
    head = torch.randn(vocab, 8, generator=g).requires_grad_()
    logits = torch.randn(5, vocab, generator=g)
    best = logits.argmax(-1)
    best[2] = -1
    targets = TrainingTargets(torch.empty(0), logits, logits.logsumexp(-1), best)
    return hidden, head, targets, torch.randint(0, 5, (num_rows,), generator=g), torch.rand(num_rows, generator=g)


def plain(hidden, head, targets, place, weight):
    known = (targets.best_Q[place] >= 0).float()
    log_q = (hidden @ head.T).log_softmax(-1)
    ce = -(targets.logits_QV[place].softmax(-1) * log_q).sum(-1) * known
    return (ce * weight).sum(), ce


def test_value_and_gradients_are_those_of_autograd(monkeypatch):
    monkeypatch.setattr(losses, "_CHUNK_ROWS", 4)  # the last chunk is smaller
    hidden, head, targets, place, weight = make()
    loss, ce, hit = soft_loss(hidden, head, targets, place, weight)
    got = torch.autograd.grad(loss * 3, [hidden, head])
    expected, expected_ce = plain(hidden, head, targets, place, weight)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ce, expected_ce.detach())
    for a, b in zip(got, torch.autograd.grad(expected * 3, [hidden, head]), strict=True):
        torch.testing.assert_close(a, b)
    assert torch.equal(hit, (hidden @ head.T).argmax(-1) == targets.best_Q[place])


def test_rows_whose_choice_cannot_be_drafted_teach_nothing():
    hidden, head, targets, _, weight = make()
    place = torch.full((11,), 2)
    loss, _, hit = soft_loss(hidden, head, targets, place, weight)
    grads = torch.autograd.grad(loss, [hidden, head])
    assert float(loss.detach()) == 0 and not hit.any() and all(not g.any() for g in grads)
