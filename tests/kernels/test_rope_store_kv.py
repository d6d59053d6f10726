import numpy as np
import pytest
import torch

from specbench.kernels.rope_store_kv import rope_store_kv, rope_store_kv_ref, rope_store_kv_triton

PAGES, PAGE, MAX_POSITION = 7, 4, 50
EPS = 0.1  # large enough to be seen


def cos_sin(head_dim: int) -> torch.Tensor:
    frequency = 10000.0 ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = np.arange(MAX_POSITION)[:, None] * frequency[None, :]
    return torch.from_numpy(np.concatenate([np.cos(angle), np.sin(angle)], axis=1)).float()


def rotate(heads: np.ndarray, position: np.ndarray) -> np.ndarray:
    """As complex numbers: element d and d + D/2 are one number, turned by its angle."""
    half = heads.shape[2] // 2
    frequency = 10000.0 ** (-np.arange(half) / half)
    turn = np.exp(1j * position[:, None] * frequency[None, :])[:, None, :]
    turned = (heads[..., :half] + 1j * heads[..., half:]) * turn
    return np.concatenate([turned.real, turned.imag], axis=2)


def normalise(heads: np.ndarray, weights: np.ndarray, num_q: int, num_kv: int) -> np.ndarray:
    weight = np.repeat(weights, [num_q, num_kv], axis=0)
    turned = heads[:, : num_q + num_kv]
    return turned / np.sqrt((turned**2).mean(axis=2, keepdims=True) + EPS) * weight


@pytest.mark.parametrize("rows,num_q,num_kv,head_dim", [(1, 9, 3, 64), (5, 4, 4, 16), (3, 8, 1, 32), (2, 2, 2, 48)])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("op", [rope_store_kv_ref, rope_store_kv_triton, rope_store_kv])
def test_rotates_and_stores(op, rows, num_q, num_kv, head_dim, dtype, normed, device, assert_close):
    generator = torch.Generator().manual_seed(rows)
    qkv = torch.randn(rows, (num_q + 2 * num_kv) * head_dim, generator=generator).to(device, dtype)
    position = torch.randint(0, MAX_POSITION, (rows,), generator=generator)
    slot = torch.randperm(PAGES * PAGE, generator=generator)[:rows]
    caches = [torch.full((PAGES, PAGE, num_kv, head_dim), float("nan"), dtype=dtype, device=device) for _ in range(2)]
    before = qkv.clone()
    weights = torch.randn(2, head_dim, generator=generator).to(device, dtype)
    norm = (weights, EPS) if normed else ()
    q = op(qkv, cos_sin(head_dim).to(device), position.to(device), slot.to(device), *caches, num_q, num_kv, *norm)

    assert q.is_contiguous() and q.dtype == dtype and torch.equal(qkv, before)
    heads = before.cpu().double().numpy().reshape(rows, -1, head_dim)
    wide = normalise(heads, weights.cpu().double().numpy(), num_q, num_kv) if normed else heads
    turned = torch.from_numpy(rotate(wide, position.numpy()))
    assert_close(q, turned[:, :num_q])
    k_cache, v_cache = (cache.cpu().view(PAGES * PAGE, num_kv, head_dim) for cache in caches)
    assert_close(k_cache[slot], turned[:, num_q : num_q + num_kv])
    assert torch.equal(v_cache[slot].double(), torch.from_numpy(heads[:, num_q + num_kv :]))
    untouched = torch.ones(PAGES * PAGE, dtype=torch.bool)
    untouched[slot] = False
    assert k_cache[untouched].isnan().all() and v_cache[untouched].isnan().all()


@pytest.mark.parametrize("op", [rope_store_kv_ref, rope_store_kv_triton])
def test_padding_rows_may_share_the_dummy_slot(op, device):
    qkv = torch.ones(4, 3 * 16, device=device)
    caches = [torch.full((2, PAGE, 1, 16), float("nan"), device=device) for _ in range(2)]
    nought = torch.zeros(4, dtype=torch.int64, device=device)
    op(qkv, cos_sin(16).to(device), nought.int(), nought, *caches, 1, 1)
    for cache in caches:
        assert (cache[0, 0] == 1).all() and cache.isnan().sum() == (2 * PAGE - 1) * 16
