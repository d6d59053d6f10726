"""Drafts by prompt lookup: what followed the longest suffix of the context where it occurred before.

Same choice as vLLM's `ngram_proposer.py`: the longest match wins, among equals the earliest occurrence.
Legend: B requests, S slots, L width of the token buffer, W part of it that is searched, K draft depth.
"""

import torch
from torch import Tensor

from specbench.kernels.buffers import Slots
from specbench.kernels.triton_support import dispatch, tl, triton


def ngram_propose_ref(slot_B: Tensor, slots: Slots, min_n: int, max_n: int) -> None:
    """Fills drafts_SK[slot_B] with K proposals for the context tokens_SL[s, 0..n_S[s]], the pending token included.

    A suffix of min_n..max_n tokens that also ends earlier in the context is a match (the two may overlap). Fewer than K
    tokens behind the match leave -1 behind them, no match leaves only -1.
    """
    _check_lengths(min_n, max_n)
    tokens_SL, drafts_SK = slots.tokens_SL, slots.drafts_SK
    last_B1 = slots.n_S[slot_B].long().unsqueeze(1)
    # Where a look costs no synchronisation, the search is narrowed to the longest context.
    most = tokens_SL.shape[1] if tokens_SL.is_cuda else int(last_B1.max()) + 1
    context_BW = tokens_SL[slot_B, :most]
    width = context_BW.shape[1]
    index_W = torch.arange(width, device=tokens_SL.device)

    run_BW = _match_lengths(context_BW, last_B1, max_n)
    # Longer first, then earlier. An end at or after the last token is not an earlier occurrence.
    eligible_BW = (run_BW >= min_n) & (index_W < last_B1)
    key_BW = torch.where(eligible_BW, run_BW * width - index_W, -1)
    best_B1, end_B1 = key_BW.max(dim=1, keepdim=True)

    follow_BK = end_B1 + 1 + torch.arange(drafts_SK.shape[1], device=tokens_SL.device)
    exists_BK = (follow_BK <= last_B1) & (best_B1 >= 0)
    found_BK = context_BW.gather(1, follow_BK.clamp_(max=width - 1))
    drafts_SK[slot_B] = torch.where(exists_BK, found_BK, -1)


def _match_lengths(context_BW: Tensor, last_B1: Tensor, max_n: int) -> Tensor:
    """How many tokens up to and including each index equal the context's last ones, at most max_n; int64 [B, W]."""
    alive_BW = context_BW == context_BW.gather(1, last_B1)
    run_BW = alive_BW.long()
    for shift in range(1, min(max_n, context_BW.shape[1])):
        # A context shorter than the shift compares its first token, which no earlier run of that length can reach.
        token_B1 = context_BW.gather(1, (last_B1 - shift).clamp_(min=0))
        alive_BW[:, shift:] &= context_BW[:, :-shift] == token_B1
        alive_BW[:, :shift] = False
        run_BW += alive_BW
    return run_BW


def ngram_propose_triton(slot_B: Tensor, slots: Slots, min_n: int, max_n: int) -> None:
    _check_lengths(min_n, max_n)
    num_requests, depth = slot_B.shape[0], slots.drafts_SK.shape[1]
    if num_requests == 0 or depth == 0:
        return
    _ngram_propose_kernel[(num_requests,)](
        slot_B,
        slots.args,
        MIN_N=min_n,
        MAX_N=max_n,
        K=depth,
        BLOCK_W=min(triton.next_power_of_2(slots.tokens_SL.shape[1]), 1024),
        BLOCK_K=triton.next_power_of_2(depth),
        num_warps=8,
    )


ngram_propose = dispatch(ngram_propose_ref, ngram_propose_triton)


def _check_lengths(min_n: int, max_n: int) -> None:
    if not 1 <= min_n <= max_n:
        raise ValueError(f"min_n {min_n} and max_n {max_n}: allowed are 1 <= min_n <= max_n")


@triton.jit
def _ngram_propose_kernel(
    slot_ptr,
    slots,
    MIN_N: tl.constexpr,
    MAX_N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + request).to(tl.int64)
    last = tl.load(slots.n + slot).to(tl.int32)
    row_ptr = slots.tokens + slot * slots.tokens_width

    # Each lane keeps its longest run and, of equals, the earliest end: lanes see their indices in rising order.
    best_run = tl.zeros([BLOCK_W], dtype=tl.int32)
    best_end = tl.zeros([BLOCK_W], dtype=tl.int32)
    start = 0
    while start < last:
        end = start + tl.arange(0, BLOCK_W)
        alive = (end < last).to(tl.int32)
        run = tl.zeros([BLOCK_W], dtype=tl.int32)
        for shift in range(0, MAX_N):
            inside = (alive > 0) & (end >= shift)
            suffix_token = tl.load(row_ptr + last - shift, mask=last >= shift, other=-1)
            same = tl.load(row_ptr + end - shift, mask=inside, other=-2) == suffix_token
            alive = alive * (inside & same).to(tl.int32)
            run += alive
        better = run > best_run
        best_end = tl.where(better, end, best_end)
        best_run = tl.maximum(run, best_run)
        start += BLOCK_W

    longest = tl.max(best_run, axis=0)
    match_end = tl.min(tl.where(best_run == longest, best_end, last), axis=0)
    column = tl.arange(0, BLOCK_K)
    follow = match_end + 1 + column
    exists = (longest >= MIN_N) & (follow <= last)
    draft = tl.load(row_ptr + follow, mask=exists, other=-1)
    tl.store(slots.drafts + slot * K + column, draft, mask=column < K)
