"""Conformance 59: the two pseudo-requests of SGLang's naive EAGLE (PR 6995) say what one causal query of two rows says.

There each verified row was a request of its own with a key more than the one before; here the rows of a request are one
query. Every backend that plain CPUs have is asked both ways.
"""

from __future__ import annotations

import pytest
import torch

from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.attention.torch_attention import TorchAttention

PAGE, HEADS, KV_HEADS, DIM = 4, 6, 2, 16
KV_LENS = (2, 9, 31)  # with the rows' own keys


def _meta(q: int, kv_lens: list[int], table_BP: torch.Tensor) -> AttentionMetadata:
    cu_q_B1 = torch.arange(len(kv_lens) + 1, dtype=torch.int32) * q
    kv_len_B = torch.tensor(kv_lens, dtype=torch.int32)
    return AttentionMetadata.uniform(cu_q_B1, kv_len_B, table_BP, q=q, max_kv=max(kv_lens))


def _both_ways(rows: int, shift: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """As one query of `rows` rows a request, and as a request a row; `shift`: keys too few of the pseudo-requests."""
    torch.manual_seed(rows)
    num, pages = len(KV_LENS), -(-max(KV_LENS) // PAGE)
    table_BP = (torch.randperm(num * pages) + 1).to(torch.int32).view(num, pages)
    shape = (num * pages + 1, PAGE, KV_HEADS, DIM)
    k_cache, v_cache = torch.randn(shape), torch.randn(shape)
    q_THD = torch.randn(num * rows, HEADS, DIM)
    backend = TorchAttention()
    one = backend.forward(q_THD, k_cache, v_cache, _meta(rows, list(KV_LENS), table_BP), DIM**-0.5)
    lens = [max(kv_len - (rows - 1 - row) - shift, 1) for kv_len in KV_LENS for row in range(rows)]
    table_TP = table_BP.repeat_interleave(rows, 0)
    return one, backend.forward(q_THD, k_cache, v_cache, _meta(1, lens, table_TP), DIM**-0.5)


def test_c59_two_pseudo_requests_equal_a_causal_pair():
    one, two = _both_ways(2)
    torch.testing.assert_close(one, two, atol=2e-6, rtol=0)


def test_c59_sees_a_key_too_few():
    one, two = _both_ways(2, shift=1)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(one, two, atol=2e-6, rtol=0)
