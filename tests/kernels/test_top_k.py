"""The k best tokens of a row, as a sort of the whole row finds them."""

import math

import pytest
import torch

from specbench.kernels.top_k import LARGEST, top_k, top_k_ref, top_k_triton


def _rows(vocab: int, dtype: torch.dtype) -> torch.Tensor:
    """Spread out, in few steps (so that most are equal), with NaN and infinities, and with hardly a token that may be
    taken, in the first part of the vocabulary, behind it, or nowhere."""
    generator = torch.Generator().manual_seed(vocab)
    rows = torch.randn(7, vocab, generator=generator).to(dtype)
    rows[1] = (rows[1] * 2).round()
    rows[2, ::3], rows[2, 1::3] = math.nan, -math.inf
    rows[3, [4, vocab - 1]] = math.inf
    rows[4:] = -math.inf
    rows[4, 2], rows[5, vocab - 1] = 0.5, 0.5
    return rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("vocab", "k"), [(16, 16), (1000, 1), (1025, 8), (5003, 16), (40_000, 4)])
@pytest.mark.parametrize("op", [top_k_ref, top_k_triton, top_k])
def test_best_tokens_and_their_log_probabilities(op, vocab, k, dtype, device):
    rows = _rows(vocab, dtype)
    clean = rows.double().nan_to_num(nan=-math.inf, posinf=LARGEST, neginf=-math.inf)
    best, ids = clean.sort(dim=1, descending=True, stable=True)
    scores, found = (x.cpu() for x in op(rows.to(device), k))
    assert scores.dtype == torch.float32 and found.dtype == torch.int64
    exists = best[:, :k] > -math.inf
    assert torch.equal(found[exists], ids[:, :k][exists]) and (scores[~exists] == -math.inf).all()
    assert ((found >= 0) & (found < vocab)).all(), "what is gathered by an id must be there"
    expected = (best[:, :k] - clean.logsumexp(dim=1, keepdim=True)).float()
    torch.testing.assert_close(scores[exists], expected[exists], rtol=1e-5, atol=1e-5)
