"""Conformance test 49 on the kernel's level: overlapping moves, page boundaries, any page size."""

import pytest
import torch

from specbench.kernels.compact_kv import compact_kv, compact_kv_ref, compact_kv_triton

OPS = [compact_kv_ref, compact_kv_triton, compact_kv]

# (n before the round, accepted, path): neighbours that overlap, one that stays, all that stay, nothing accepted.
REQUESTS = [
    (0, 3, [0, 2, 3, 4, 4]),
    (7, 4, [0, 1, 3, 4, 9]),
    (5, 2, [0, 1, 2, 2, 2]),
    (9, 0, [0, 0, 0, 0, 0]),
    (3, 1, [0, 8, 8, 8, 8]),
    (0, 0, [0, 0, 0, 0, 0]),
]


def make(page_size: int, device: torch.device, layers: int = 3, heads: int = 2, dim: int = 8):
    generator = torch.Generator().manual_seed(page_size)
    pages_each = -(-20 // page_size)
    num_pages = len(REQUESTS) * pages_each + 1
    table = (torch.randperm(num_pages - 1, generator=generator) + 1).view(len(REQUESTS), pages_each).int()
    shape = (layers, num_pages, page_size, heads, dim)
    k, v = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    width = len(REQUESTS[0][2])
    status = torch.full((len(REQUESTS), 6 + width), -1, dtype=torch.int32)
    for row, (n, accepted, _) in zip(status, REQUESTS, strict=True):
        committed = min(accepted + 1, 2)  # a limit may commit less than was accepted
        row[:4] = torch.tensor([accepted, committed, 0, n + committed])
    path = torch.tensor([path for _, _, path in REQUESTS])
    return [x.to(device) for x in (k, v, path, status, table)]


def flat(cache: torch.Tensor, table: torch.Tensor, request: int) -> torch.Tensor:
    """[layers, positions, heads, dim] of one request."""
    return cache[:, table[request].long()].flatten(1, 2)


@pytest.mark.parametrize("page_size", [1, 2, 3, 16, 32])
@pytest.mark.parametrize("op", OPS)
def test_path_stands_behind_the_older_keys(op, page_size, device):
    k, v, path, status, table = make(page_size, device)
    before = [x.clone() for x in (k, v)]
    op(k, v, path, status, table)
    for cache, old in zip((k, v), before, strict=True):
        expected = old.clone()
        for request, (n, accepted, nodes) in enumerate(REQUESTS):
            old_flat = flat(old, table, request)
            for step in range(1, accepted + 1):
                page, slot = divmod(n + step, page_size)
                expected[:, table[request, page].long(), slot] = old_flat[:, n + nodes[step]]
        assert torch.equal(cache, expected)
        assert not torch.equal(cache, old)


@pytest.mark.parametrize("op", OPS)
def test_wide_heads_and_padded_layers(op, device):
    """More elements a position than one program holds, and layers that are views of a larger allocation."""
    k, v, path, status, table = make(4, device, layers=2, heads=9, dim=256)
    expected = [x.clone() for x in (k, v)]
    compact_kv_ref(*expected, path, status, table)
    both = torch.stack([k, v], 1)
    k_view, v_view = both[:, 0], both[:, 1]
    op(k_view, v_view, path, status, table)
    assert torch.equal(k_view, expected[0]) and torch.equal(v_view, expected[1])
