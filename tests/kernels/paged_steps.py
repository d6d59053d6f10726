"""Random steps over paged keys, with their oracle, for attention backends that run in bf16 on a GPU.

Legend: T rows, B requests, q rows and L keys of one request, M masked keys, P pages a request, H heads, D head
dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionBackend, AttentionGeometry, AttentionMetadata, HostLengths
from specbench.kernels.attention.torch_attention import TorchAttention

# Largest absolute error on outputs of order 1: the weights are rounded to the dtype before the second product.
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
# What unused slots hold: large, so that a key read by mistake shows, yet finite, so that a weight of 0 silences it.
GARBAGE = 1e4


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """(rows, keys) of each request, the shape of heads and pages, and how many keys a tree mask covers (0: causal)."""

    lengths: tuple[tuple[int, int], ...]
    num_kv_heads: int = 2
    group: int = 4
    head_dim: int = 128
    page_size: int = 16
    dtype: torch.dtype = torch.bfloat16
    num_masked: int = 0
    max_kv: int = 0
    """Bound of the lengths, of the tables' width too; 0: the longest."""
    seed: int = 0

    def __str__(self) -> str:
        lengths = ",".join(f"{q}x{kv_len}" for q, kv_len in self.lengths[:3])
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{lengths}-g{self.group}-d{self.head_dim}-p{self.page_size}-{dtype}-m{self.num_masked}"


@dataclass(frozen=True, slots=True)
class Step:
    q_THD: Tensor
    k_cache: Tensor
    v_cache: Tensor
    meta: AttentionMetadata
    lengths: HostLengths
    scale: float

    @property
    def geometry(self) -> AttentionGeometry:
        return AttentionGeometry(
            num_q_heads=self.q_THD.shape[1],
            num_kv_heads=self.k_cache.shape[2],
            head_dim=self.q_THD.shape[2],
            page_size=self.k_cache.shape[1],
            scale=self.scale,
            dtype=self.q_THD.dtype,
            device=self.q_THD.device,
        )

    def plan(self, backend: AttentionBackend) -> None:
        """What the engine does before a launch: nothing for plan-free backends."""
        if backend.is_planned:
            backend.plan(self.meta, self.lengths, self.geometry)  # type: ignore[attr-defined]

    def run(self, backend: AttentionBackend, out_THD: Tensor | None = None) -> Tensor:
        return backend.forward(self.q_THD, self.k_cache, self.v_cache, self.meta, self.scale, out_THD)

    def expected_THD(self) -> Tensor:
        """The torch backend's result in fp32, from the tensors as they are now."""
        inputs = (x.float() for x in (self.q_THD, self.k_cache, self.v_cache))
        return TorchAttention().forward(*inputs, replace(self.meta, cache={}), self.scale)

    def check(self, out_THD: Tensor) -> None:
        assert out_THD.dtype == self.q_THD.dtype and out_THD.shape == self.q_THD.shape
        error = (out_THD.float() - self.expected_THD()).abs().max()
        assert error < TOLERANCE[out_THD.dtype], f"largest error {error}"

    def become(self, other: Step) -> Step:
        """This step's tensors rewritten in place with another's of the same shapes; its host lengths in the result."""
        for name in ("q_THD", "k_cache", "v_cache"):
            getattr(self, name).copy_(getattr(other, name))
        for name in ("cu_q_B1", "kv_len_B", "block_table_BP"):
            getattr(self.meta, name).copy_(getattr(other.meta, name))
        if self.meta.tree_mask_BQM is not None:
            assert other.meta.tree_mask_BQM is not None
            self.meta.tree_mask_BQM.copy_(other.meta.tree_mask_BQM)
        return replace(self, lengths=other.lengths)


def random_masks(num_requests: int, q: int, num_masked: int) -> Tensor:
    """Trees whose last q of `num_masked` nodes are the rows: each sees itself and what its parent sees."""
    mask_BMM = torch.eye(num_masked, dtype=torch.bool).repeat(num_requests, 1, 1)
    for b in range(num_requests):
        for node in range(1, num_masked):
            mask_BMM[b, node] |= mask_BMM[b, int(torch.randint(node, ()))]
    return mask_BMM[:, num_masked - q :].contiguous()


def make_step(case: Case, device: torch.device, garbage: float = GARBAGE) -> Step:
    """Random rows over shuffled pages; every slot that holds no key of a request holds `garbage`, all of page 0 too."""
    torch.manual_seed(case.seed)
    page = case.page_size
    q_lens = [q for q, _ in case.lengths]
    kv_lens = [kv_len for _, kv_len in case.lengths]
    max_kv = case.max_kv or max(kv_lens)
    width = -(-max_kv // page) + 1
    num_pages = 1 + len(case.lengths) * width
    free = (torch.randperm(num_pages - 1) + 1).tolist()
    table_BP = np.zeros((len(case.lengths), width), np.int32)
    shape = (num_pages, page, case.num_kv_heads, case.head_dim)
    k_cache, v_cache = (torch.full(shape, garbage, dtype=case.dtype, device=device) for _ in "kv")
    for b, kv_len in enumerate(kv_lens):
        used = [free.pop() for _ in range(-(-kv_len // page))]
        table_BP[b, : len(used)] = used
        first_slots = torch.tensor(used, dtype=torch.int64) * page
        slot_L = (first_slots[:, None] + torch.arange(page)).flatten()[:kv_len].to(device)
        for cache in (k_cache, v_cache):
            keys_LHD = torch.randn(kv_len, *shape[2:], device=device).to(case.dtype)
            cache.view(-1, *shape[2:]).index_copy_(0, slot_L, keys_LHD)
    lengths = HostLengths(np.cumsum([0, *q_lens], dtype=np.int32), np.array(kv_lens, np.int32), table_BP)
    max_q = max(q_lens)
    mask_BQM = random_masks(len(q_lens), max_q, case.num_masked).to(device) if case.num_masked else None
    meta = AttentionMetadata(
        cu_q_B1=torch.from_numpy(lengths.cu_q_B1).to(device, copy=True),
        kv_len_B=torch.from_numpy(lengths.kv_len_B).to(device, copy=True),
        block_table_BP=torch.from_numpy(table_BP).to(device, copy=True),
        max_q=max_q,
        max_kv=max_kv,
        is_uniform=len(set(q_lens)) == 1,
        tree_mask_BQM=mask_BQM,
    )
    q_THD = torch.randn(sum(q_lens), case.num_kv_heads * case.group, case.head_dim, device=device).to(case.dtype)
    return Step(q_THD, k_cache, v_cache, meta, lengths, case.head_dim**-0.5)


def on_dummy_page(step: Step, first: int) -> Step:
    """The step with its requests from `first` on as padding: as many keys as rows, all on page 0, which holds zeros."""
    step.k_cache[0], step.v_cache[0] = 0.0, 0.0
    kv_len_B, table_BP = step.lengths.kv_len_B.copy(), step.lengths.block_table_BP.copy()
    kv_len_B[first:], table_BP[first:] = step.meta.max_q, 0
    step.meta.kv_len_B.copy_(torch.from_numpy(kv_len_B))
    step.meta.block_table_BP.copy_(torch.from_numpy(table_BP))
    return replace(step, lengths=HostLengths(step.lengths.cu_q_B1, kv_len_B, table_BP))


def bit(packed: list[int], index: int) -> bool:
    """Bit `index` of bytes that are filled from their lowest place."""
    return bool(packed[index // 8] >> index % 8 & 1)
