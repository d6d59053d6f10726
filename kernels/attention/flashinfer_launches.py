"""FlashInfer's wrappers as planned launches: one object a kernel and shape, planned again before every use.

Legend: B requests, P pages a request, N pages in use, T rows, Q rows a request, H heads, D head dimension.

A uniform step's launch keeps all that its kernels read in fixed buffers, so a captured graph replays with whatever was
planned last. Each launch has its own int workspace, since several are planned at once in one graph (a drafter's
passes); the float workspace holds partial results of one call at a time and is shared. Plans read host tensors only:
nothing waits for the device, except for the copies of the same launch's previous plan, whose pinned source is reused.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionGeometry, AttentionMetadata, HostLengths
from specbench.kernels.attention.flashinfer_lib import load
from specbench.kernels.attention.pack_tree_mask import PackedTreeMask

_INT_WORKSPACE_ALIGN = 1 << 16
# Programs of FlashInfer's FA2 kernels at once on one multiprocessor, as its planner counts them.
_PROGRAMS_PER_SM = 2


@dataclass(frozen=True, slots=True)
class PageLists:
    """A block table without its unused entries, on the host."""

    first_page_B1: Tensor
    pages_N: Tensor
    last_len_B: Tensor
    """Keys on the last page."""


def page_lists(lengths: HostLengths, page_size: int) -> PageLists:
    """int32 host tensors; a request without keys has no pages."""
    kv_len_B = lengths.kv_len_B.astype(np.int32)
    num_pages_B = -(-kv_len_B // page_size)
    num_requests, width = lengths.block_table_BP.shape
    assert num_pages_B.max(initial=0) <= width, f"{num_pages_B.max()} pages are in use, the block table has {width}"
    in_use_BP = np.arange(width) < num_pages_B[:, None]
    first_page_B1 = np.zeros(num_requests + 1, np.int32)
    np.cumsum(num_pages_B, out=first_page_B1[1:])
    return PageLists(
        torch.from_numpy(first_page_B1),
        torch.from_numpy(lengths.block_table_BP[in_use_BP].astype(np.int32)),
        torch.from_numpy(np.where(kv_len_B > 0, (kv_len_B - 1) % page_size + 1, 0).astype(np.int32)),
    )


class _ReplanGuard:
    """Keeps a plan from overwriting pinned memory that the plan before is still being copied from."""

    def __init__(self) -> None:
        self._copied: torch.cuda.Event | None = None

    def __enter__(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()

    def __exit__(self, *_: object) -> None:
        self._copied = self._copied or torch.cuda.Event()
        self._copied.record()


@dataclass(frozen=True, slots=True)
class _Buffers:
    """What a uniform step's kernels read of the layout, at fixed addresses."""

    cu_q_B1: Tensor
    first_page_B1: Tensor
    pages_N: Tensor
    last_len_B: Tensor

    @classmethod
    def for_step(cls, meta: AttentionMetadata) -> _Buffers:
        num_requests, width = meta.block_table_BP.shape
        sizes = (num_requests + 1, num_requests + 1, num_requests * width, num_requests)
        return cls(*(torch.zeros(n, dtype=torch.int32, device=meta.kv_len_B.device) for n in sizes))

    def send_pages(self, pages_N: Tensor) -> Tensor:
        """The pages in the fixed buffer; pinned on their way, since a large pageable copy would wait for the device."""
        target_N = self.pages_N[: len(pages_N)]
        return target_N.copy_(pages_N.pin_memory(), non_blocking=True)


def _small_int_workspace(meta: AttentionMetadata) -> Tensor:
    """Ints of a uniform step's plan: a few a row, a request and a program; the library's own 8 MiB a launch add up."""
    num_requests = meta.kv_len_B.shape[0]
    num_bytes = 64 * (num_requests * meta.max_q + num_requests + 4096)
    num_bytes = -(-num_bytes // _INT_WORKSPACE_ALIGN) * _INT_WORKSPACE_ALIGN
    return torch.empty(num_bytes, dtype=torch.uint8, device=meta.kv_len_B.device)


class PlannedLaunch:
    """One of FlashInfer's kernels over one step."""

    _wrapper: Any

    def __init__(self) -> None:
        self._guard = _ReplanGuard()

    def plan(self, meta: AttentionMetadata, lengths: HostLengths, geometry: AttentionGeometry) -> None:
        raise NotImplementedError

    def run(self, q_THD: Tensor, k_cache: Tensor, v_cache: Tensor, meta: AttentionMetadata, out_THD: Tensor) -> None:
        self._wrapper.run(q_THD, (k_cache, v_cache), out=out_THD)

    def _plan(self, geometry: AttentionGeometry, *layout: Tensor, **options: bool | int | Tensor) -> None:
        """Inside the guard: `layout` as the kernel's wrapper takes it by position."""
        g = geometry
        arithmetic = dict(sm_scale=g.scale, q_data_type=g.dtype, kv_data_type=g.dtype)
        self._wrapper.plan(*layout, g.num_q_heads, g.num_kv_heads, g.head_dim, g.page_size, **arithmetic, **options)


class DecodeLaunch(PlannedLaunch):
    """One row a request through the decode kernel on CUDA cores: for few query heads a KV head."""

    def __init__(self, meta: AttentionMetadata, float_workspace: Tensor) -> None:
        assert meta.is_uniform and meta.max_q == 1 and meta.tree_mask_BQM is None
        super().__init__()
        self._buffers = _Buffers.for_step(meta)
        self._wrapper = load("decode").BatchDecodeWithPagedKVCacheWrapper(
            float_workspace,
            "NHD",
            use_cuda_graph=True,
            use_tensor_cores=False,
            paged_kv_indptr_buffer=self._buffers.first_page_B1,
            paged_kv_indices_buffer=self._buffers.pages_N,
            paged_kv_last_page_len_buffer=self._buffers.last_len_B,
        )
        self._wrapper.reset_workspace_buffer(float_workspace, _small_int_workspace(meta))

    def plan(self, meta: AttentionMetadata, lengths: HostLengths, geometry: AttentionGeometry) -> None:
        lists = page_lists(lengths, geometry.page_size)
        with self._guard:
            pages_N = self._buffers.send_pages(lists.pages_N)
            self._plan(geometry, lists.first_page_B1, pages_N, lists.last_len_B)


class UniformLaunch(PlannedLaunch):
    """A uniform step through the prefill kernels, causal or, with FA2, under a tree mask."""

    def __init__(self, kernel: str, meta: AttentionMetadata, float_workspace: Tensor) -> None:
        """`kernel` is fa2 or fa3; only fa2 has masks."""
        assert meta.is_uniform and (meta.tree_mask_BQM is None or kernel == "fa2")
        super().__init__()
        self._kernel = kernel
        self._buffers = _Buffers.for_step(meta)
        self._mask: PackedTreeMask | None = None
        masks: dict[str, Tensor] = {}
        if meta.tree_mask_BQM is not None:
            self._mask = PackedTreeMask(meta, over_all_keys=True)
            num_requests, num_bytes = self._mask.bits_BN.shape
            device = meta.kv_len_B.device
            self._first_byte_B1 = torch.arange(num_requests + 1, dtype=torch.int32, device=device) * num_bytes
            self._mask_indptr_B1 = self._first_byte_B1.clone()
            masks = dict(custom_mask_buf=self._mask.bits_BN.view(-1), mask_indptr_buf=self._mask_indptr_B1)
        self._wrapper = load("prefill").BatchPrefillWithPagedKVCacheWrapper(
            float_workspace,
            "NHD",
            use_cuda_graph=True,
            qo_indptr_buf=self._buffers.cu_q_B1,
            paged_kv_indptr_buf=self._buffers.first_page_B1,
            paged_kv_indices_buf=self._buffers.pages_N,
            paged_kv_last_page_len_buf=self._buffers.last_len_B,
            backend=kernel,
            **masks,
        )
        # With it the planner's tile fits Q rows instead of the worst ragged case; older versions lack it.
        self._takes_uniform_q_len = "uniform_q_len" in inspect.signature(self._wrapper.plan).parameters
        if kernel == "fa2":
            self._wrapper.reset_workspace_buffer(float_workspace, _small_int_workspace(meta))

    def plan(self, meta: AttentionMetadata, lengths: HostLengths, geometry: AttentionGeometry) -> None:
        lists = page_lists(lengths, geometry.page_size)
        options: dict[str, bool | int | Tensor] = dict(causal=self._mask is None)
        if self._kernel == "fa2":
            options["disable_split_kv"] = fills_device(meta, geometry)
            if self._takes_uniform_q_len:
                options["uniform_q_len"] = meta.max_q
        if self._mask is not None:
            self._mask.forget_layers()
            # Tells the planner that there is a mask; the bits are written by `run`, on the device.
            options["packed_custom_mask"] = self._mask.bits_BN.view(-1)[:1]
        with self._guard:
            cu_q_B1 = torch.from_numpy(lengths.cu_q_B1.astype(np.int32))
            pages_N = self._buffers.send_pages(lists.pages_N)
            self._plan(geometry, cu_q_B1, lists.first_page_B1, pages_N, lists.last_len_B, **options)
        if self._mask is not None:
            # The planner wrote first bits where its kernel reads first bytes (it only converts masks it packs itself).
            self._mask_indptr_B1.copy_(self._first_byte_B1)

    def run(self, q_THD: Tensor, k_cache: Tensor, v_cache: Tensor, meta: AttentionMetadata, out_THD: Tensor) -> None:
        if self._mask is not None:
            self._mask.update(meta, k_cache)
        super().run(q_THD, k_cache, v_cache, meta, out_THD)


class RaggedLaunch(PlannedLaunch):
    """A ragged step, which no graph captures, through the causal prefill kernels; serves any number of requests."""

    def __init__(self, kernel: str, float_workspace: Tensor) -> None:
        super().__init__()
        self._num_rows = 0
        self._wrapper = load("prefill").BatchPrefillWithPagedKVCacheWrapper(float_workspace, "NHD", backend=kernel)

    def plan(self, meta: AttentionMetadata, lengths: HostLengths, geometry: AttentionGeometry) -> None:
        lists = page_lists(lengths, geometry.page_size)
        self._num_rows = int(lengths.cu_q_B1[-1])
        with self._guard:
            cu_q_B1 = torch.from_numpy(lengths.cu_q_B1.astype(np.int32))
            pages_N = lists.pages_N.pin_memory()
            self._plan(geometry, cu_q_B1, lists.first_page_B1, pages_N, lists.last_len_B, causal=True)

    def run(self, q_THD: Tensor, k_cache: Tensor, v_cache: Tensor, meta: AttentionMetadata, out_THD: Tensor) -> None:
        rows = slice(0, self._num_rows)
        super().run(q_THD[rows], k_cache, v_cache, meta, out_THD[rows])


def fills_device(meta: AttentionMetadata, geometry: AttentionGeometry) -> bool:
    """Whether a uniform step has a program for every place without splits of the keys, which then cost a merge only.

    Tiles as FlashInfer's FA2DetermineCtaTileQ cuts them (128 packed rows, 64 up to 64, 16 up to 16).
    """
    packed_rows = meta.max_q * geometry.num_q_heads // geometry.num_kv_heads
    tile = 128 if packed_rows > 64 else 64 if packed_rows > 16 else 16
    num_programs = meta.kv_len_B.shape[0] * -(-packed_rows // tile) * geometry.num_kv_heads
    num_sms = torch.cuda.get_device_properties(geometry.device).multi_processor_count
    return num_programs >= _PROGRAMS_PER_SM * num_sms
