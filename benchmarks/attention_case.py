"""A shape that `attention_h200.py` times, and the caches of its layers on the device."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionMetadata

HEADS = {
    "8b": (32, 8, 128),
    "8b@2": (16, 4, 128),  # a rank's of two
    "8b@4": (8, 2, 128),
    "70b@2": (32, 4, 128),
    "70b@4": (16, 2, 128),
    "smollm2": (9, 3, 64),
}
MIN_LAYERS, MAX_LAYERS = 20, 1000
COLD_BYTES = 200e6  # several times the 50-60 MB of L2
MEMORY_SHARE = 0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One shape: a model's heads, requests, keys of each, rows of each."""

    model: str
    num_requests: int
    kv_len: int
    q: int

    def __str__(self) -> str:
        return f"{self.model}:{self.num_requests}:{self.kv_len}:{self.q}"

    @classmethod
    def parse(cls, text: str) -> Case:
        model, *numbers = text.split(":")
        if model not in HEADS or len(numbers) != 3:
            raise ValueError(f"case is {text!r}; allowed: MODEL:B:L:Q with MODEL one of {sorted(HEADS)}")
        num_requests, kv_len, q = map(int, numbers)
        return cls(model=model, num_requests=num_requests, kv_len=kv_len, q=q)

    @property
    def key_value_bytes(self) -> int:
        _, num_kv_heads, head_dim = HEADS[self.model]
        return 2 * self.num_requests * self.kv_len * num_kv_heads * head_dim * 2

    @property
    def total_bytes(self) -> int:
        """What one launch must move: keys and values, rows in and out."""
        num_heads, _, head_dim = HEADS[self.model]
        return self.key_value_bytes + 2 * self.num_requests * self.q * num_heads * head_dim * 2


@dataclass(frozen=True, slots=True)
class Layers:
    """Rows, and a cache for each layer, of one case."""

    q_THD: Tensor
    k_caches: list[Tensor]
    v_caches: list[Tensor]
    meta: AttentionMetadata
    scale: float


ALL_CASES = [
    Case(model=model, num_requests=num_requests, kv_len=kv_len, q=q)
    for model, num_requests, kv_len, q in itertools.product(("8b", "smollm2"), (1, 64), (128, 4096), (1, 5))
]


def make_layers(case: Case, page_size: int, max_kv: int | None) -> Layers:
    """Shuffled pages, one table for all layers as in an engine."""
    num_heads, num_kv_heads, head_dim = HEADS[case.model]
    pages_each = -(-case.kv_len // page_size)
    num_pages = case.num_requests * pages_each + 1
    layer_bytes = 2 * num_pages * page_size * num_kv_heads * head_dim * 2
    free_bytes, _ = torch.cuda.mem_get_info()
    wanted = min(MAX_LAYERS, max(MIN_LAYERS, int(COLD_BYTES / layer_bytes) + 1))
    num_layers = max(1, min(wanted, int(MEMORY_SHARE * free_bytes / layer_bytes)))
    cache_shape = (num_pages, page_size, num_kv_heads, head_dim)
    k_caches, v_caches = (
        [torch.randn(cache_shape, device="cuda", dtype=torch.bfloat16) for _ in range(num_layers)] for _ in "kv"
    )
    table_BP = (torch.randperm(num_pages - 1, device="cuda") + 1).to(torch.int32).view(case.num_requests, pages_each)
    bound = max(case.kv_len, max_kv or 0)
    width = -(-bound // page_size)
    meta = AttentionMetadata.uniform(
        torch.arange(case.num_requests + 1, device="cuda", dtype=torch.int32) * case.q,
        torch.full((case.num_requests,), case.kv_len, device="cuda", dtype=torch.int32),
        torch.nn.functional.pad(table_BP, (0, width - pages_each)).contiguous(),
        q=case.q,
        max_kv=bound,
    )
    q_THD = torch.randn(case.num_requests * case.q, num_heads, head_dim, device="cuda", dtype=torch.bfloat16)
    return Layers(q_THD, k_caches, v_caches, meta, head_dim**-0.5)
