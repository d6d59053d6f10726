"""The k most likely tokens of each row with their log-probabilities.

Legend: R rows, V vocabulary, k tokens a row, N parts of a row (one program each).
"""

import math

import torch
from torch import Tensor

from specbench.kernels.sample import argmax_ref
from specbench.kernels.triton_support import dispatch, tl, triton

_MAX_PARTS = 32
_MIN_BLOCK = 1024
LARGEST = 3.0e38  # replaces +inf, so that a log-probability is never inf - inf


def top_k_ref(logits_RV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Log-softmax (fp32 [R, k], descending) and ids (int64 [R, k]) of each row's k largest logits.

    Ties go to the lowest id, as in `sample`. NaN counts as -inf; where all that is left does, the id is any.
    """
    clean_RV = torch.nan_to_num(logits_RV.float(), nan=-math.inf, posinf=LARGEST, neginf=-math.inf)
    lse_R1 = torch.logsumexp(clean_RV, dim=1, keepdim=True)
    left_RV = clean_RV.clone()
    ids = []
    for _ in range(k):
        ids.append(argmax_ref(left_RV).unsqueeze(1))
        left_RV.scatter_(1, ids[-1], -math.inf)
    ids_Rk = torch.cat(ids, dim=1)
    return _log_probabilities(clean_RV.gather(1, ids_Rk), lse_R1), ids_Rk


def top_k_triton(logits_RV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    best_RNk, ids_RNk, mass_RN2 = top_k_parts(logits_RV, k)
    # Equal logits lie in the order of their ids, which a stable sort keeps.
    best_RP, place_RP = best_RNk.flatten(1).sort(dim=1, descending=True, stable=True)
    ids_Rk = ids_RNk.flatten(1).gather(1, place_RP[:, :k]).long()
    largest_RN, sum_RN = mass_RN2.unbind(dim=2)
    lse_R1 = (largest_RN + sum_RN.log()).logsumexp(dim=1, keepdim=True)
    return _log_probabilities(best_RP[:, :k], lse_R1), ids_Rk


top_k = dispatch(top_k_ref, top_k_triton)


def _log_probabilities(logit_Rk: Tensor, lse_R1: Tensor) -> Tensor:
    return torch.where(logit_Rk > -math.inf, (logit_Rk - lse_R1).clamp_(max=0.0), -math.inf)


def top_k_parts(logits_RV: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """First stage on the device: of each part of a row the k largest logits (fp32 [R, N, k]) and their ids (int32
    [R, N, k]), and the largest logit with the sum of exp(logit - largest) (fp32 [R, N, 2])."""
    num_rows, vocab = logits_RV.shape
    assert logits_RV.stride(1) == 1 and vocab >= k, "columns must be dense and at least k"
    block = max(_MIN_BLOCK, triton.next_power_of_2(triton.cdiv(vocab, _MAX_PARTS)))
    parts = triton.cdiv(vocab, block)
    best_RNk = torch.empty((num_rows, parts, k), dtype=torch.float32, device=logits_RV.device)
    ids_RNk = torch.empty((num_rows, parts, k), dtype=torch.int32, device=logits_RV.device)
    mass_RN2 = torch.empty((num_rows, parts, 2), dtype=torch.float32, device=logits_RV.device)
    _top_k_parts_kernel[(num_rows, parts)](
        logits_RV,
        best_RNk,
        ids_RNk,
        mass_RN2,
        logits_RV.stride(0),
        vocab,
        parts,
        TOPK=k,
        BIGGEST=LARGEST,
        BLOCK=block,
        num_warps=4,
    )
    return best_RNk, ids_RNk, mass_RN2


@triton.jit
def _top_k_parts_kernel(
    logits_ptr,
    best_ptr,
    ids_ptr,
    mass_ptr,
    stride_logits,
    vocab,
    parts,
    TOPK: tl.constexpr,
    BIGGEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    index = part * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits_ptr + row * stride_logits + index, mask=index < vocab, other=float("-inf")).to(tl.float32)
    z = tl.minimum(tl.where(z == z, z, float("-inf")), BIGGEST)  # NaN differs from itself
    at = row * parts + part
    largest = tl.max(z, axis=0)
    # Where all is -inf the difference would be NaN.
    mass = tl.sum(tl.where(z > float("-inf"), tl.exp(z - largest), 0.0), axis=0)
    tl.store(mass_ptr + at * 2, largest)
    tl.store(mass_ptr + at * 2 + 1, mass)
    for place in range(TOPK):
        best = tl.max(z, axis=0)
        chosen = tl.min(tl.where(z == best, index, 2147483647), axis=0)
        tl.store(best_ptr + at * TOPK + place, best)
        # Beyond the vocabulary: no candidate; the second stage drops it.
        tl.store(ids_ptr + at * TOPK + place, tl.where(chosen < vocab, chosen, 2147483647))
        z = tl.where(index == chosen, float("-inf"), z)
        index = tl.where(index == chosen, 2147483647, index)
