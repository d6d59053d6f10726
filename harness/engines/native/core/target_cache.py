"""The target's keys and values: all layers in one tensor each, so that one kernel can move rows of every layer.

Engines that never run at the same time may share the memory of their caches: a table of fifteen arms needs that of the
largest, not the sum. An engine whose requests have all ended leaves nothing in a cache that a later one reads, since
keys beyond a request's own length never count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specbench.harness.engines.native.models.forward import KVCache


class CacheMemory(Protocol):
    """The source of memory for one engine's caches."""

    def take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A dense tensor that stays at its address. It has zeros, or keys and values that some engine has computed:
        never memory as it was found, which may hold NaN."""
        ...


class OwnMemory:
    """Memory that belongs to one engine."""

    def take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        # Zeros, not empty: masked values are multiplied by zero probability, and 0 * NaN would leak.
        return torch.zeros(tuple(shape), dtype=dtype, device=device)


class CachePool:
    """Memory for engines that run one after another, never two at the same time: each lease starts at the first buffer.

    A lease that needs a larger buffer gets a new one, which later leases share; captured graphs keep the addresses of
    the buffer that they were captured with.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}

    def lease(self) -> CacheMemory:
        """For one engine."""
        return _Lease(self)

    def buffer(self, number: int, num_elements: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The buffer with this number, of at least `num_elements`."""
        key = (number, dtype, device)
        found = self._buffers.get(key)
        if found is None or found.numel() < num_elements:
            found = self._buffers[key] = OwnMemory().take((num_elements,), dtype, device)
        return found


class _Lease:
    """Hands out a pool's buffers in order, so that no two caches of one engine overlap."""

    def __init__(self, pool: CachePool):
        self._pool = pool
        self._num_taken = 0

    def take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        number, self._num_taken = self._num_taken, self._num_taken + 1
        num_elements = math.prod(shape)
        return self._pool.buffer(number, num_elements, dtype, device)[:num_elements].view(tuple(shape))


class TargetCache:
    """`k_LPNHD`, `v_LPNHD` [layers, pages, page size, Hkv, D]; `layers` are views of one layer each."""

    def __init__(
        self, *, num_layers: int, num_pages: int, page_size: int, num_kv_heads: int, head_dim: int,
        dtype: torch.dtype, device: torch.device, memory: CacheMemory | None = None,
    ):  # fmt: skip
        memory = memory or OwnMemory()
        shape = (num_layers, num_pages, page_size, num_kv_heads, head_dim)
        self.k_LPNHD = memory.take(shape, dtype, device)
        self.v_LPNHD = memory.take(shape, dtype, device)
        self.layers = [KVCache(k, v) for k, v in zip(self.k_LPNHD, self.v_LPNHD, strict=True)]
