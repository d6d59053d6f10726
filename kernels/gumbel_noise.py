"""Logits with Gumbel noise: what the first places of a draw without replacement are read from.

The k largest of log q + noise are k tokens drawn from q without replacement, in the order drawn (the Gumbel-top-k
trick: Kool et al. 2019, arXiv 1903.06059). Noise and its keys are those of `sample`.
Legend: R rows, V vocabulary.
"""

import torch
from torch import Tensor

from specbench.kernels.philox import PURPOSE_SAMPLE, philox_uniform_block, uniform
from specbench.kernels.sample import gumbel, gumbel_ref, load_quarter
from specbench.kernels.triton_support import dispatch, tl, triton

_BLOCK_QUADS = 512


def add_gumbel_ref(logits_RV: Tensor, is_random_R: Tensor, seed_R: Tensor, position_R: Tensor) -> Tensor:
    """fp32 [R, V]: logits, in rows that are random (bool) with noise. NaN counts as -inf."""
    wide_RV = torch.where(logits_RV.isnan(), float("-inf"), logits_RV.float())
    noise_RV = gumbel_ref(uniform(seed_R, position_R, PURPOSE_SAMPLE, logits_RV.shape[1]))
    return torch.where(is_random_R.unsqueeze(1), wide_RV + noise_RV, wide_RV)


def add_gumbel_triton(logits_RV: Tensor, is_random_R: Tensor, seed_R: Tensor, position_R: Tensor) -> Tensor:
    num_rows, vocab = logits_RV.shape
    assert logits_RV.stride(1) == 1, "columns must be dense"
    out_RV = torch.empty(num_rows, vocab, dtype=torch.float32, device=logits_RV.device)
    if num_rows == 0:
        return out_RV
    quads = triton.cdiv(vocab, 4)
    _add_gumbel_kernel[(num_rows, triton.cdiv(quads, _BLOCK_QUADS))](
        logits_RV,
        is_random_R,
        seed_R,
        position_R,
        out_RV,
        logits_RV.stride(0),
        vocab,
        quads,
        PURPOSE=PURPOSE_SAMPLE,
        BLOCK_QUADS=_BLOCK_QUADS,
        num_warps=4,
    )
    return out_RV


add_gumbel = dispatch(add_gumbel_ref, add_gumbel_triton)


@triton.jit
def _add_gumbel_kernel(
    logits_ptr,
    is_random_ptr,
    seed_ptr,
    position_ptr,
    out_ptr,
    stride_logits,
    vocab,
    quads,
    PURPOSE: tl.constexpr,
    BLOCK_QUADS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    quad = tl.program_id(1) * BLOCK_QUADS + tl.arange(0, BLOCK_QUADS)
    row_ptr = logits_ptr + row * stride_logits
    z0 = load_quarter(row_ptr, quad, 0, quads, vocab)
    z1 = load_quarter(row_ptr, quad, 1, quads, vocab)
    z2 = load_quarter(row_ptr, quad, 2, quads, vocab)
    z3 = load_quarter(row_ptr, quad, 3, quads, vocab)
    if tl.load(is_random_ptr + row) != 0:
        u0, u1, u2, u3 = philox_uniform_block(tl.load(seed_ptr + row), tl.load(position_ptr + row), PURPOSE, quad)
        z0 += gumbel(u0)
        z1 += gumbel(u1)
        z2 += gumbel(u2)
        z3 += gumbel(u3)
    out_row_ptr = out_ptr + row * vocab
    _store_quarter(out_row_ptr, z0, quad, 0, quads, vocab)
    _store_quarter(out_row_ptr, z1, quad, 1, quads, vocab)
    _store_quarter(out_row_ptr, z2, quad, 2, quads, vocab)
    _store_quarter(out_row_ptr, z3, quad, 3, quads, vocab)


@triton.jit
def _store_quarter(row_ptr, value, quad, quarter: tl.constexpr, quads, vocab):
    element = quad + quarter * quads
    tl.store(row_ptr + element, value, mask=(quad < quads) & (element < vocab))
