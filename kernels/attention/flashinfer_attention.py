"""FlashInfer's planned kernels over paged keys: prefill FA2 and FA3, and decode.

Legend: T rows of the step, B requests, Q rows a request, H heads, D head dimension.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionGeometry, AttentionMetadata, HostLengths
from specbench.kernels.attention.flashinfer_launches import DecodeLaunch, PlannedLaunch, RaggedLaunch, UniformLaunch
from specbench.kernels.attention.flashinfer_lib import check_dtype, check_head_dim, flashinfer_missing, require

KERNELS = ("decode", "fa2", "fa3")
_FLOAT_WORKSPACE_BYTES = 256 << 20
# From so many query heads a KV head on, tensor cores (FA2) beat the decode kernel's CUDA cores, whose rows are not
# packed; FlashInfer's callers draw the line at the same place.
_TENSOR_CORE_GROUP = 4
# FA3's tile is 128 or 192 rows of one query head, neither packed with its group nor split over keys: below half a tile
# FA2, which does both, is ahead.
_MIN_FA3_ROWS = 64


def choose_kernel(meta: AttentionMetadata, geometry: AttentionGeometry, capability_major: int) -> str:
    """decode, fa2 or fa3: from the metadata's host constants alone, so that a captured step keeps its kernel."""
    if meta.tree_mask_BQM is not None:
        return "fa2"
    group = geometry.num_q_heads // geometry.num_kv_heads
    if meta.is_uniform and meta.max_q == 1 and group < _TENSOR_CORE_GROUP:
        return "decode"
    return "fa3" if capability_major == 9 and meta.max_q >= _MIN_FA3_ROWS else "fa2"


@dataclass(eq=False)
class _Lease:
    """A launch that belongs to one metadata object; not slotted, so that it can be referred to weakly."""

    launch: PlannedLaunch
    scale: float


class FlashInferAttention:
    """Attention that is planned on the host before each launch; uniform steps can be captured and replanned.

    The launch of a metadata object lives in its cache and returns to the backend when the metadata goes, so steps with
    a metadata of their own each (mixed steps) take turns with few launches. One stream at a time.
    """

    name = "flashinfer"
    is_planned = True

    def __init__(self, choose: Callable[[AttentionMetadata, AttentionGeometry, int], str] = choose_kernel) -> None:
        """`choose` picks the kernel of a step. ValueError where FlashInfer or a CUDA device is missing."""
        require(flashinfer_missing(), self.name)
        self._choose = choose
        self._float_workspace: Tensor | None = None
        self._idle: dict[Hashable, list[PlannedLaunch]] = {}

    def plan(self, meta: AttentionMetadata, lengths: HostLengths, geometry: AttentionGeometry) -> None:
        """See PlannedAttentionBackend.plan. ValueError for head dimensions and dtypes that the kernels do not have.

        A tree mask and its lengths are read on the device by the first layer's `forward`, not here.
        """
        check_head_dim(geometry.head_dim)
        check_dtype(geometry.dtype)
        key = self._key(geometry.num_q_heads, geometry.num_kv_heads, geometry.head_dim, geometry.page_size)
        lease = meta.cache.get(key)
        if lease is None:
            lease = meta.cache[key] = self._lease(meta, geometry)
        lease.scale = geometry.scale
        lease.launch.plan(meta, lengths, geometry)

    def forward(
        self,
        q_THD: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        meta: AttentionMetadata,
        scale: float,
        out_THD: Tensor | None = None,
    ) -> Tensor:
        """See AttentionBackend.forward. Rows of the step that belong to no request are left unwritten."""
        lease = meta.cache.get(self._key(q_THD.shape[1], k_cache.shape[2], q_THD.shape[2], k_cache.shape[1]))
        assert lease is not None, "flashinfer: plan(meta, ...) for this model comes before forward"
        assert lease.scale == scale, f"flashinfer: planned with scale {lease.scale}, called with {scale}"
        out_THD = torch.empty_like(q_THD, memory_format=torch.contiguous_format) if out_THD is None else out_THD
        lease.launch.run(q_THD, k_cache, v_cache, meta, out_THD)
        return out_THD

    def _key(self, num_q_heads: int, num_kv_heads: int, head_dim: int, page_size: int) -> Hashable:
        return (self, num_q_heads, num_kv_heads, head_dim, page_size)

    def _lease(self, meta: AttentionMetadata, geometry: AttentionGeometry) -> _Lease:
        """An idle launch of the step's shape, or a new one; it is idle again once the metadata is gone."""
        kernel = self._choose(meta, geometry, torch.cuda.get_device_capability(geometry.device)[0])
        if kernel not in KERNELS:
            raise ValueError(f"flashinfer kernel: {kernel!r}; allowed: {', '.join(KERNELS)}")
        key: Hashable = (kernel, _shape_key(meta) if meta.is_uniform else None)
        idle = self._idle.setdefault(key, [])
        launch = idle.pop() if idle else self._make(kernel, meta, geometry.device)
        lease = _Lease(launch, geometry.scale)
        weakref.finalize(lease, idle.append, launch).atexit = False
        return lease

    def _make(self, kernel: str, meta: AttentionMetadata, device: torch.device) -> PlannedLaunch:
        if self._float_workspace is None:
            self._float_workspace = torch.zeros(_FLOAT_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        if kernel == "decode":
            return DecodeLaunch(meta, self._float_workspace)
        if meta.is_uniform:
            return UniformLaunch(kernel, meta, self._float_workspace)
        return RaggedLaunch(kernel, self._float_workspace)


def _shape_key(meta: AttentionMetadata) -> Hashable:
    """What the buffers of a uniform step's launch are sized by."""
    mask_BQM = meta.tree_mask_BQM
    return (tuple(meta.block_table_BP.shape), meta.max_q, meta.max_kv, None if mask_BQM is None else mask_BQM.shape)
