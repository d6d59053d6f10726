"""The one sampler: greedy and random rows alike are one argmax.

A random row takes argmax(logits / temperature + Gumbel noise), which is a draw from softmax(logits / temperature); the
noise is Philox's, keyed by (seed, position), so a token does not depend on batch, strategy or launch.
Legend: R rows, V vocabulary, N parts of a row (one program each).
"""

import math

import torch
from torch import Tensor

from specbench.kernels.philox import PURPOSE_SAMPLE, philox_uniform_block, uniform
from specbench.kernels.triton_support import dispatch, early_launch, tl, triton, wait_for_inputs

_NEGATIVE_INFINITY = -math.inf


def sample_ref(
    logits_RV: Tensor,
    temperature_R: Tensor,
    seed_R: Tensor,
    position_R: Tensor,
    all_greedy: bool,
    out_R: Tensor | None = None,
) -> Tensor:
    """Token ids, int64 [R], written to `out_R` where it is given.

    A row with temperature 0 takes argmax(logits). `all_greedy` promises that every row does, whatever `temperature_R`
    says. NaN counts as -inf; ties go to the lowest index; a row without any finite or +inf logit gives 0.
    """
    if all_greedy:
        ids_R = argmax_ref(logits_RV)
    else:
        random_R1 = (temperature_R > 0).unsqueeze(1)
        scale_R1 = torch.where(random_R1, temperature_R.unsqueeze(1), 1.0)
        noise_RV = gumbel_ref(uniform(seed_R, position_R, PURPOSE_SAMPLE, logits_RV.shape[1]))
        ids_R = argmax_ref(torch.where(random_R1, noise_RV, 0.0).add_(logits_RV.float() / scale_R1))
    return ids_R if out_R is None else out_R.copy_(ids_R)


def gumbel_ref(uniform_RV: Tensor) -> Tensor:
    """-log(E) with E = -log(1 - u) exponential."""
    return torch.log1p(-uniform_RV).neg_().log_().neg_()


def argmax_ref(logits_RV: Tensor) -> Tensor:
    """Index of each row's largest value, int64 [R]: NaN as -inf, the lowest index of equals.

    In two steps because torch vectorises `amax` on the CPU but not `max` with its index: 8 times as fast for V = 49152.
    """
    clean_RV = without_nan(logits_RV)
    num_rows, vocab = clean_RV.shape
    chunk = next((size for size in (256, 128, 64) if vocab % size == 0), 0)
    if chunk == 0:
        return clean_RV.max(dim=1).indices
    chunks_RNC = clean_RV.view(num_rows, vocab // chunk, chunk)
    best_R1 = chunks_RNC.amax(dim=2).max(dim=1, keepdim=True).indices
    row_R1 = torch.arange(num_rows, device=best_R1.device).unsqueeze(1)
    inner_R1 = chunks_RNC[row_R1, best_R1].squeeze(1).max(dim=1, keepdim=True).indices
    return (best_R1 * chunk + inner_R1).squeeze(1)


def without_nan(logits_RV: Tensor) -> Tensor:
    """A copy in fp32 with NaN turned to -inf, infinities kept."""
    wide_RV = logits_RV.float()
    own_RV = wide_RV if wide_RV is not logits_RV else None
    return torch.nan_to_num(wide_RV, nan=_NEGATIVE_INFINITY, posinf=math.inf, neginf=_NEGATIVE_INFINITY, out=own_RV)


def filter_top_k_top_p(logits_RV: Tensor, temperature_R: Tensor, top_k_R: Tensor, top_p_R: Tensor) -> Tensor:
    """A copy of the logits with -inf outside each row's top-k and then top-p set (the order of vLLM and transformers).

    Top-k is off for k <= 0 or k >= V and keeps ties with the k-th value. Top-p is off for p >= 1; otherwise it keeps
    the most likely tokens of softmax(logits / temperature) (temperature 0 counts as 1) until their mass reaches p, at
    least one. Plain torch without a host read, for CPU and CUDA.
    """
    vocab = logits_RV.shape[1]
    wide_RV = without_nan(logits_RV)
    sorted_RV, order_RV = wide_RV.sort(dim=1, descending=True, stable=True)

    k_R1 = top_k_R.to(torch.int64).unsqueeze(1)
    k_R1 = torch.where((k_R1 <= 0) | (k_R1 > vocab), vocab, k_R1)
    sorted_RV.masked_fill_(sorted_RV < sorted_RV.gather(1, k_R1 - 1), _NEGATIVE_INFINITY)

    scale_R1 = torch.where(temperature_R > 0, temperature_R, 1.0).unsqueeze(1)
    mass_RV = torch.softmax(sorted_RV / scale_R1, dim=1)
    mass_before_RV = mass_RV.cumsum(dim=1) - mass_RV
    top_p_R1 = top_p_R.unsqueeze(1)
    drop_RV = (mass_before_RV >= top_p_R1) & (top_p_R1 < 1)
    drop_RV[:, 0] = False
    sorted_RV.masked_fill_(drop_RV, _NEGATIVE_INFINITY)
    return torch.empty_like(sorted_RV).scatter_(1, order_RV, sorted_RV).to(logits_RV.dtype)


def sample_triton(
    logits_RV: Tensor,
    temperature_R: Tensor,
    seed_R: Tensor,
    position_R: Tensor,
    all_greedy: bool,
    out_R: Tensor | None = None,
) -> Tensor:
    num_rows = logits_RV.shape[0]
    if out_R is None:
        out_R = torch.empty(num_rows, dtype=torch.int64, device=logits_RV.device)
    if num_rows == 0:
        return out_R
    best_RN, index_RN = argmax_parts(logits_RV, None if all_greedy else (temperature_R, seed_R, position_R))
    parts = best_RN.shape[1]
    _take_best_kernel[(num_rows,)](
        best_RN,
        index_RN,
        out_R,
        out_R.stride(0),
        parts,
        BLOCK_N=triton.next_power_of_2(parts),
        num_warps=1,
        **early_launch(logits_RV),
    )
    return out_R


sample = dispatch(sample_ref, sample_triton)


def argmax_parts(logits_RV: Tensor, noise: tuple[Tensor, Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """First stage on the device: the best score (fp32 [R, N]) and its index (int32 [R, N]) of each part of a row.

    `noise` = (temperature_R, seed_R, position_R) adds Gumbel noise to the rows whose temperature is above 0.
    """
    num_rows, vocab = logits_RV.shape
    assert logits_RV.stride(1) == 1, "columns must be dense"
    quads = triton.cdiv(vocab, 4)
    block = 512 if num_rows <= 64 else 1024
    parts = triton.cdiv(quads, block)
    best_RN = torch.empty((num_rows, parts), dtype=torch.float32, device=logits_RV.device)
    index_RN = torch.empty((num_rows, parts), dtype=torch.int32, device=logits_RV.device)
    _argmax_parts_kernel[(num_rows, parts)](
        logits_RV,
        noise,
        best_RN,
        index_RN,
        logits_RV.stride(0),
        vocab,
        quads,
        parts,
        PURPOSE=PURPOSE_SAMPLE,
        BLOCK_QUADS=block,
        num_warps=4,
        **early_launch(logits_RV),
    )
    return best_RN, index_RN


@triton.jit
def _argmax_parts_kernel(
    logits_ptr,
    noise,
    best_ptr,
    index_ptr,
    stride_logits,
    vocab,
    quads,
    parts,
    PURPOSE: tl.constexpr,
    BLOCK_QUADS: tl.constexpr,
    EARLY: tl.constexpr,
):
    wait_for_inputs(EARLY)
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    quad = part * BLOCK_QUADS + tl.arange(0, BLOCK_QUADS)
    row_ptr = logits_ptr + row * stride_logits
    z0 = load_quarter(row_ptr, quad, 0, quads, vocab)
    z1 = load_quarter(row_ptr, quad, 1, quads, vocab)
    z2 = load_quarter(row_ptr, quad, 2, quads, vocab)
    z3 = load_quarter(row_ptr, quad, 3, quads, vocab)
    if noise is not None:
        temperature_ptr, seed_ptr, position_ptr = noise
        temperature = tl.load(temperature_ptr + row)
        if temperature > 0:
            seed = tl.load(seed_ptr + row)
            position = tl.load(position_ptr + row)
            u0, u1, u2, u3 = philox_uniform_block(seed, position, PURPOSE, quad)
            z0 = z0 / temperature + gumbel(u0)
            z1 = z1 / temperature + gumbel(u1)
            z2 = z2 / temperature + gumbel(u2)
            z3 = z3 / temperature + gumbel(u3)
    best = z0
    index = tl.where(quad < quads, quad, vocab)  # never chosen: a valid index of equal score is always lower
    index = tl.where(z1 > best, quad + quads, index)
    best = tl.maximum(best, z1)
    index = tl.where(z2 > best, quad + 2 * quads, index)
    best = tl.maximum(best, z2)
    index = tl.where(z3 > best, quad + 3 * quads, index)
    best = tl.maximum(best, z3)
    part_best = tl.max(best, axis=0)
    part_index = tl.min(tl.where(best == part_best, index, vocab), axis=0)
    tl.store(best_ptr + row * parts + part, part_best)
    tl.store(index_ptr + row * parts + part, part_index)


@triton.jit
def load_quarter(row_ptr, quad, quarter: tl.constexpr, quads, vocab):
    element = quad + quarter * quads
    inside = (quad < quads) & (element < vocab)
    value = tl.load(row_ptr + element, mask=inside, other=float("-inf")).to(tl.float32)
    return tl.where(value == value, value, float("-inf"))  # NaN differs from itself


@triton.jit
def gumbel(u):
    # log1p by its series where 1 - u would lose u's digits; relative error below 4e-6.
    series = u * (1.0 + u * (0.5 + u * (0.3333333333333333 + u * 0.25)))
    return -tl.log(tl.where(u < 0.01, series, -tl.log(1.0 - u)))


@triton.jit
def best_of_parts(best_ptr, index_ptr, row, parts, BLOCK_N: tl.constexpr):
    """Second stage, for other kernels to call: the index of a row's largest value, the lowest of equals."""
    part = tl.arange(0, BLOCK_N)
    inside = part < parts
    best = tl.load(best_ptr + row * parts + part, mask=inside, other=float("-inf"))
    index = tl.load(index_ptr + row * parts + part, mask=inside, other=2147483647)
    return tl.min(tl.where(best == tl.max(best, axis=0), index, 2147483647), axis=0).to(tl.int64)


@triton.jit
def _take_best_kernel(best_ptr, index_ptr, out_ptr, stride_out, parts, BLOCK_N: tl.constexpr, EARLY: tl.constexpr):
    wait_for_inputs(EARLY)
    row = tl.program_id(0).to(tl.int64)
    tl.store(out_ptr + row * stride_out, best_of_parts(best_ptr, index_ptr, row, parts, BLOCK_N))
