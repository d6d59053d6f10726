"""FlashInfer's XQA kernels over paged keys: no plan, so a whole round fits one graph.

Legend: T rows of the step, B requests, Q rows a request, M masked keys, W words of 32 bits a row, H heads, D head
dimension. A module is compiled at the first call of each (dtype, page size, D, heads a KV head, Q): about half a
minute with nvcc.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionBackend, AttentionMetadata
from specbench.kernels.attention.flashinfer_lib import check_dtype, load, require, xqa_missing
from specbench.kernels.attention.pack_tree_mask import PackedTreeMask
from specbench.kernels.attention.triton_attention import TritonAttention

PAGE_SIZES = (16, 32, 64, 128)
MAX_CHAIN_ROWS = 9
MAX_TREE_ROWS = 64
_SEMAPHORE_BYTES = 8 << 20
_SCRATCH_BYTES = 120 << 20
_WORD_BITS = 32


class FlashInferXqa:
    """XQA for decode rounds; steps of other shapes go to a plan-free backend for ragged rows.

    Capturable after one warm-up call of its shape. One stream at a time: all calls share one workspace.
    """

    name = "flashinfer-xqa"
    is_planned = False

    def __init__(self, ragged: AttentionBackend | None = None) -> None:
        """`ragged` serves prompt chunks (default: TritonAttention). ValueError where XQA cannot be used, with why."""
        require(xqa_missing(), self.name)
        self._ragged = ragged or TritonAttention()
        assert not self._ragged.is_planned, "the backend of ragged steps must need no plan either"
        self._xqa = load("xqa").xqa
        self._semaphores: Tensor | None = None
        self._scratch: Tensor | None = None
        # One a (B, Q), for good: a captured graph holds their addresses.
        self._chain_masks: dict[tuple[int, int], Tensor] = {}

    def forward(
        self,
        q_THD: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        meta: AttentionMetadata,
        scale: float,
        out_THD: Tensor | None = None,
    ) -> Tensor:
        """See AttentionBackend.forward. ValueError for page sizes, dtypes, head dimensions and trees XQA lacks."""
        if not meta.is_uniform or (meta.tree_mask_BQM is None and meta.max_q > MAX_CHAIN_ROWS):
            return self._ragged.forward(q_THD, k_cache, v_cache, meta, scale, out_THD)
        _check(q_THD, k_cache, meta)
        out_THD = torch.empty_like(q_THD, memory_format=torch.contiguous_format) if out_THD is None else out_THD
        assert out_THD.is_contiguous(), "XQA writes dense rows"
        num_requests, q, head_dim = meta.kv_len_B.shape[0], meta.max_q, q_THD.shape[2]
        # [B, beams, Q, H, D], and without Q where it is 1; XQA reads q and the table densely.
        shape = (num_requests, 1, *((q,) if q > 1 else ()), *q_THD.shape[1:])
        semaphores, scratch = self._workspace(q_THD.device)
        self._xqa(
            q_THD.contiguous().view(shape),
            k_cache,
            v_cache,
            meta.block_table_BP.contiguous(),
            meta.kv_len_B.view(torch.uint32).unsqueeze(1),
            out_THD.view(shape),
            scratch,
            semaphores,
            k_cache.shape[2],
            k_cache.shape[1],
            q_scale=scale * head_dim**0.5,  # the kernel divides by sqrt(D) itself
            q_seq_len=q,
            mask=self._mask(meta, k_cache),
        )
        return out_THD

    def _mask(self, meta: AttentionMetadata, k_cache: Tensor) -> Tensor | None:
        """uint16 [B, Q, 2W]: the rows' own keys, a bit each."""
        if meta.max_q == 1:
            return None
        if meta.tree_mask_BQM is None:
            return self._chain_mask(meta)
        packed = meta.cache.get((self, "mask"))
        if packed is None:
            packed = meta.cache[self, "mask"] = PackedTreeMask(meta, over_all_keys=False)
        packed.update(meta, k_cache)
        return packed.bits_BN.view(torch.uint16).unflatten(1, (meta.max_q, -1))

    def _chain_mask(self, meta: AttentionMetadata) -> Tensor:
        num_requests, q = meta.kv_len_B.shape[0], meta.max_q
        mask = self._chain_masks.get((num_requests, q))
        if mask is None:
            words = [(2 << row) - 1 for row in range(q)]
            assert q <= MAX_CHAIN_ROWS < _WORD_BITS
            word_Q1 = torch.tensor(words, dtype=torch.int32, device=meta.kv_len_B.device).unsqueeze(1)
            mask = word_Q1.repeat(num_requests, 1, 1).view(torch.uint16)
            self._chain_masks[num_requests, q] = mask
        return mask

    def _workspace(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Semaphores, which the kernels expect at zero and leave at zero, and partial results."""
        if self._semaphores is None or self._scratch is None:
            self._semaphores = torch.zeros(_SEMAPHORE_BYTES // 4, dtype=torch.int32, device=device).view(torch.uint32)
            self._scratch = torch.empty(_SCRATCH_BYTES, dtype=torch.uint8, device=device)
        return self._semaphores, self._scratch


def _check(q_THD: Tensor, k_cache: Tensor, meta: AttentionMetadata) -> None:
    check_dtype(q_THD.dtype)
    page_size, head_dim, mask_BQM = k_cache.shape[1], q_THD.shape[2], meta.tree_mask_BQM
    if page_size not in PAGE_SIZES:
        raise ValueError(f"page_size: {page_size}; allowed with flashinfer-xqa: {', '.join(map(str, PAGE_SIZES))}")
    if head_dim % 16 or head_dim > 256:
        raise ValueError(f"head_dim: {head_dim}; allowed with flashinfer-xqa: multiples of 16 up to 256")
    if mask_BQM is not None and (mask_BQM.shape[2] != meta.max_q or meta.max_q > MAX_TREE_ROWS):
        shape = tuple(mask_BQM.shape[1:])
        raise ValueError(f"tree mask: {shape}; allowed with flashinfer-xqa: [Q, Q] with Q up to {MAX_TREE_ROWS}")
