"""Tree masks as bits: what FlashInfer's kernels read instead of a bool a key.

Legend: B requests, Q rows and M masked keys of a request, N bytes of a request's bits.
Bit i of a request is bit i % 8 of byte i // 8; row r, key j is bit r * row_bits + j. FlashInfer's prefill
kernels (attention/variants.cuh) count all keys of the request, row_bits = kv_len; its XQA kernels (xqa/mha.cu) count
the masked keys alone, in whole words of 32 bits.
"""

import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.triton_support import dispatch, tl, triton

_BYTES_PER_PROGRAM = 256
_WORD_BITS = 32


class PackedTreeMask:
    """The bits of one metadata's mask in a buffer that stays, packed anew by the first layer of each pass.

    The first layer is the one whose cache is seen first after `forget_layers`: a captured pass then packs once a
    replay, after whatever in the same graph wrote the mask and the lengths, and the other layers share the result.
    """

    def __init__(self, meta: AttentionMetadata, *, over_all_keys: bool) -> None:
        """`over_all_keys`: rows count every key up to max_kv (prefill kernels), else the masked ones (XQA)."""
        mask_BQM = meta.tree_mask_BQM
        assert mask_BQM is not None and meta.is_uniform, "a packed mask needs a uniform step with a tree mask"
        num_requests, q, num_masked = mask_BQM.shape
        self._row_bits = 0 if over_all_keys else -(-num_masked // _WORD_BITS) * _WORD_BITS
        num_bytes = -(-q * (self._row_bits or meta.max_kv) // 8)
        assert num_requests * num_bytes < 2**31, f"the bits of {num_requests} masks do not fit 32-bit offsets"
        self.bits_BN = torch.zeros(num_requests, num_bytes, dtype=torch.uint8, device=mask_BQM.device)
        self._first_cache: int | None = None

    def forget_layers(self) -> None:
        """The next layer seen is the first."""
        self._first_cache = None

    def update(self, meta: AttentionMetadata, k_cache: Tensor) -> None:
        """Packs the mask if this is the pass's first layer."""
        if self._first_cache is None:
            self._first_cache = k_cache.data_ptr()
        if self._first_cache == k_cache.data_ptr():
            assert meta.tree_mask_BQM is not None
            pack_tree_mask(meta.tree_mask_BQM, meta.kv_len_B, self.bits_BN, self._row_bits)


def pack_tree_mask_ref(mask_BQM: Tensor, kv_len_B: Tensor, bits_BN: Tensor, row_bits: int = 0) -> None:
    """Writes the bits of `mask_BQM` (bool) into `bits_BN` (uint8); bytes behind a request's bits are left as they are.

    With `row_bits` 0 a row has kv_len bits: ones for the prefix, then the mask's M. Else it has `row_bits` of them:
    the mask's M, then zeros.
    """
    num_masked = mask_BQM.shape[2]
    place_8 = 2 ** torch.arange(8, device=mask_BQM.device)
    for b, kv_len in enumerate(kv_len_B.tolist()):
        rows_QL = mask_BQM[b]
        before, behind = (kv_len - num_masked, 0) if row_bits == 0 else (0, row_bits - num_masked)
        rows_QL = torch.nn.functional.pad(rows_QL, (before, 0), value=True)
        rows_QL = torch.nn.functional.pad(rows_QL, (0, behind), value=False)
        flat = rows_QL.reshape(-1).long()
        flat = torch.nn.functional.pad(flat, (0, -flat.numel() % 8)).view(-1, 8)
        bits_BN[b, : len(flat)] = (flat * place_8).sum(1).to(torch.uint8)


def pack_tree_mask_triton(mask_BQM: Tensor, kv_len_B: Tensor, bits_BN: Tensor, row_bits: int = 0) -> None:
    assert mask_BQM.is_contiguous() and bits_BN.stride(1) == 1
    num_requests, q, num_masked = mask_BQM.shape
    _pack_tree_mask_kernel[(num_requests, triton.cdiv(bits_BN.shape[1], _BYTES_PER_PROGRAM))](
        mask_BQM.view(torch.uint8),
        kv_len_B,
        bits_BN,
        q,
        num_masked,
        bits_BN.stride(0),
        bits_BN.shape[1],
        ROW_BITS=row_bits,
        BLOCK_N=_BYTES_PER_PROGRAM,
        num_warps=4,
    )


pack_tree_mask = dispatch(pack_tree_mask_ref, pack_tree_mask_triton)


@triton.jit(do_not_specialize=["q", "num_masked", "bits_stride", "max_bytes"])
def _pack_tree_mask_kernel(
    mask_ptr,  # uint8 [B, Q, M]
    kv_len_ptr,
    bits_ptr,
    q,
    num_masked,
    bits_stride,
    max_bytes,
    ROW_BITS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    b = tl.program_id(0)
    if ROW_BITS > 0:
        row_bits = ROW_BITS
        prefix_len = 0
    else:
        row_bits = tl.load(kv_len_ptr + b)
        prefix_len = row_bits - num_masked
    num_bytes = tl.minimum((q * row_bits + 7) // 8, max_bytes)
    if tl.program_id(1) * BLOCK_N >= num_bytes:
        return
    byte_N = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_ptr += b.to(tl.int64) * q * num_masked
    packed_N = tl.zeros((BLOCK_N,), tl.int32)
    for place in tl.static_range(8):
        bit_N = byte_N * 8 + place
        row_N = bit_N // row_bits
        own_N = bit_N % row_bits - prefix_len
        is_row_N = row_N < q
        named_N = tl.load(
            mask_ptr + row_N * num_masked + own_N, mask=is_row_N & (own_N >= 0) & (own_N < num_masked), other=0
        )
        sees_N = is_row_N & ((own_N < 0) | (named_N != 0))
        packed_N |= sees_N.to(tl.int32) << place
    tl.store(bits_ptr + b.to(tl.int64) * bits_stride + byte_N, packed_N.to(tl.uint8), mask=byte_N < num_bytes)
