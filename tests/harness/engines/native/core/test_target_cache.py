"""Caches that engines share: same memory for engines that take turns, never the same for two caches of one engine."""

from __future__ import annotations

import torch

from specbench.harness.engines.native.core.target_cache import CacheMemory, CachePool, OwnMemory, TargetCache


def cache(memory: CacheMemory, num_layers: int = 2, num_pages: int = 5) -> TargetCache:
    return TargetCache(
        num_layers=num_layers,
        num_pages=num_pages,
        page_size=4,
        num_kv_heads=2,
        head_dim=3,
        dtype=torch.float32,
        device=torch.device("cpu"),
        memory=memory,
    )


def addresses(*caches: TargetCache) -> list[int]:
    return [tensor.data_ptr() for one in caches for tensor in (one.k_LPNHD, one.v_LPNHD)]


def test_engines_that_take_turns_share_and_caches_of_one_engine_do_not():
    pool = CachePool()
    engines = [(cache(lease), cache(lease, num_layers=1)) for lease in (pool.lease(), pool.lease())]
    assert addresses(*engines[0]) == addresses(*engines[1])
    for number, tensor in enumerate([t for one in engines[0] for t in (one.k_LPNHD, one.v_LPNHD)]):
        tensor.fill_(number)
    assert [float(t.max()) for one in engines[0] for t in (one.k_LPNHD, one.v_LPNHD)] == [0, 1, 2, 3]
    assert [float(t.min()) for one in engines[1] for t in (one.k_LPNHD, one.v_LPNHD)] == [0, 1, 2, 3]


def test_a_smaller_cache_lies_densely_at_the_beginning_of_the_larger_ones_memory():
    pool = CachePool()
    large, small = cache(pool.lease(), num_pages=7), cache(pool.lease(), num_pages=3)
    assert addresses(large) == addresses(small)
    assert small.k_LPNHD.shape == (2, 3, 4, 2, 3) and small.k_LPNHD.is_contiguous()


def test_a_larger_cache_gets_memory_of_its_own_and_the_earlier_one_keeps_its_address():
    pool = CachePool()
    small = cache(pool.lease(), num_pages=3)
    before = addresses(small)
    large, again = cache(pool.lease(), num_pages=7), cache(pool.lease(), num_pages=3)
    assert not set(addresses(large)) & set(before)
    assert addresses(again) == addresses(large) and addresses(small) == before


def test_without_a_pool_nothing_is_shared():
    assert not set(addresses(cache(OwnMemory()))) & set(addresses(cache(OwnMemory())))
