"""All-reduce of few rows over GPUs that can write into each other's memory, with the residual addition and norm that
follow it in a layer: one kernel in place of two, and no barrier between the ranks.

Each rank writes its rows into an inbox on every other one and then polls its own inbox until the others' rows are there
(the low-latency protocol of TensorRT-LLM's "Lamport" all-reduce: the data are their own signal). What is not written
yet holds a NaN that arithmetic does not produce; what was read is set back to it. Each inbox is double-buffered and a
row alternates between the two halves: a rank gets what it waits for in one call only after the others had finished the
call before, so what it writes in the next call meets a clean place. Which half is next lies in GPU memory for each row,
so that CUDA graphs can be replayed in any order, the same on all ranks.

Among more than two ranks, large sums go through owners instead: a row is sent to one rank, which adds the parts and
sends the sum to the others. This takes two ways, but a rank sends 2 (N - 1) / N times its rows and not N - 1 times.

A row ends when the other ranks have started theirs. Not all blocks of a call are resident at once (of rows of 8,192
among four ranks, one a multiprocessor), so they must start in the order of their rows, as they do on NVIDIA's GPUs.
Legend: T rows of the step, H hidden size, N ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.kernels.rms_norm import add_rms_norm_ref
from specbench.kernels.triton_support import early_launch, tl, triton, wait_for_inputs

MAX_ROWS, MAX_HIDDEN = 512, 8192
OWNED_FROM = 512 << 10  # bytes of a sum that goes through owners, among more than two ranks
EMPTY = -1  # as an integer: all bits set
_WORDS = {2: torch.int16, 4: torch.int32}  # by bytes of a number


@dataclass(frozen=True, slots=True)
class Inbox:
    """One rank's: `words` [2, N, MAX_ROWS, MAX_HIDDEN] are written by the others. `address_N`: of each rank's inbox as
    this rank reaches it. `half_of_row`: in which half the next call's row goes. `owned_from`: bytes of a sum that goes
    through owners."""

    words: Tensor
    address_N: Tensor
    half_of_row: Tensor
    rank: int
    owned_from: int

    @staticmethod
    def shape(num_ranks: int) -> tuple[int, int, int, int]:
        """Of the words."""
        return 2, num_ranks, MAX_ROWS, MAX_HIDDEN

    @classmethod
    def over(cls, words: Tensor, addresses: Sequence[int], rank: int, owned_from: int = OWNED_FROM) -> Inbox:
        """Clears `words`. All ranks must have done so before the first sum."""
        words.fill_(EMPTY)
        address_N = torch.tensor(list(addresses), dtype=torch.int64, device=words.device)
        half_of_row = torch.zeros(words.shape[2], dtype=torch.int32, device=words.device)
        return cls(words, address_N, half_of_row, rank, owned_from)

    @staticmethod
    def word_type(dtype: torch.dtype) -> torch.dtype:
        return _WORDS[dtype.itemsize]

    def takes(self, x: Tensor) -> bool:
        """Whether a sum of [T, H] fits."""
        return x.ndim == 2 and len(x) <= self.words.shape[2] and x.shape[1] <= self.words.shape[3]


def all_reduce_ref(parts: Sequence[Tensor]) -> Tensor:
    """The sum of all ranks' [T, H] in fp32, rounded once. Every rank gets the same bits: all add in one order."""
    total = torch.zeros_like(parts[0], dtype=torch.float32)
    for part in parts:
        total += part.float()
    return total.to(parts[0].dtype)


def all_reduce_add_rms_norm_ref(parts: Sequence[Tensor], residual_TH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
    """`residual += sum of the parts` in place, then its norm."""
    return add_rms_norm_ref(all_reduce_ref(parts), residual_TH, weight_H, eps)


def all_reduce_rows(x_TH: Tensor, inbox: Inbox) -> Tensor:
    """`all_reduce_ref` of what every rank passes, which has the same shape on all."""
    return _launch(x_TH, inbox, None, None, 0.0)


def all_reduce_add_rms_norm(x_TH: Tensor, inbox: Inbox, residual_TH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
    """`all_reduce_add_rms_norm_ref` of what every rank passes, as in `all_reduce_rows`."""
    return _launch(x_TH, inbox, residual_TH, weight_H, eps)


def _launch(x_TH: Tensor, inbox: Inbox, residual_TH: Tensor | None, weight_H: Tensor | None, eps: float) -> Tensor:
    num_rows, hidden = x_TH.shape
    _, num_ranks, max_rows, max_hidden = inbox.words.shape
    assert x_TH.stride(1) == 1 and (weight_H is None or weight_H.is_contiguous()), "columns must be dense"
    assert residual_TH is None or residual_TH.stride(1) == 1, "columns must be dense"
    assert inbox.takes(x_TH) and inbox.word_type(x_TH.dtype) == inbox.words.dtype
    out_TH = torch.empty((num_rows, hidden), dtype=x_TH.dtype, device=x_TH.device)
    if num_rows == 0:
        return out_TH
    block = triton.next_power_of_2(hidden)
    _all_reduce_rows_kernel[(num_rows,)](
        x_TH,
        residual_TH,
        weight_H,
        out_TH,
        inbox.words,
        inbox.address_N,
        inbox.half_of_row,
        x_TH.stride(0),
        0 if residual_TH is None else residual_TH.stride(0),
        hidden,
        eps,
        MAX_ROWS=max_rows,
        MAX_HIDDEN=max_hidden,
        RANK=inbox.rank,
        NUM_RANKS=num_ranks,
        OWNED=num_ranks > 2 and x_TH.nbytes >= inbox.owned_from,
        BLOCK_H=block,
        num_warps=min(max(block // 512, 1), 16),
        **early_launch(x_TH),
    )
    return out_TH


@triton.jit
def _word(x, word_type: tl.constexpr):
    """What is sent for `x`: never what an empty place holds."""
    word = x.to(word_type, bitcast=True)
    return tl.where(word == -1, tl.full(word.shape, -2, word_type), word)  # one NaN for another


@triton.jit
def _inbox_of(rank, address_ptr, words_ptr):
    """Aligned, which Triton cannot know of an address that it reads: otherwise it would write 2 bytes at a time."""
    return tl.multiple_of(tl.load(address_ptr + rank).to(words_ptr.dtype), 16)


@triton.jit
def _send_to_others(
    word, address_ptr, words_ptr, offset, inside, RANK: tl.constexpr, NUM_RANKS: tl.constexpr, of_rank: tl.constexpr
):
    for rank in tl.static_range(NUM_RANKS):
        if rank != RANK:
            peer_ptr = _inbox_of(rank, address_ptr, words_ptr)
            tl.store(peer_ptr + offset + RANK * of_rank, word, mask=inside)


@triton.jit
def _received(own_ptr, wanted):
    """What lies there, once all of it has come."""
    word = tl.load(own_ptr, mask=wanted, other=0, volatile=True)
    while tl.max((word == -1).to(tl.int32)) > 0:
        word = tl.load(own_ptr, mask=wanted, other=0, volatile=True)
    return word


@triton.jit
def _all_reduce_rows_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    words_ptr,
    address_ptr,
    half_ptr,
    stride_x,
    stride_residual,
    hidden,
    eps,
    MAX_ROWS: tl.constexpr,
    MAX_HIDDEN: tl.constexpr,
    RANK: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    OWNED: tl.constexpr,
    BLOCK_H: tl.constexpr,
    EARLY: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK_H)
    inside = column < hidden
    if weight_ptr is not None:  # read before the wait: no kernel writes weights
        weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    wait_for_inputs(EARLY)
    half = tl.load(half_ptr + row)
    x = tl.load(x_ptr + row * stride_x + column, mask=inside, other=0.0)
    dtype = x.dtype
    word_type = words_ptr.dtype.element_ty
    of_rank: tl.constexpr = MAX_ROWS * MAX_HIDDEN
    offset = half.to(tl.int64) * NUM_RANKS * of_rank + row * MAX_HIDDEN + column
    empty = tl.full((BLOCK_H,), -1, word_type)
    owner = (row % NUM_RANKS).to(tl.int32)
    if OWNED and owner != RANK:
        owner_ptr = _inbox_of(owner, address_ptr, words_ptr)
        tl.store(owner_ptr + offset + RANK * of_rank, _word(x, word_type), mask=inside)
        y = _received(words_ptr + offset + owner * of_rank, inside).to(dtype, bitcast=True)
        tl.store(words_ptr + offset + owner * of_rank, empty, mask=inside)
    else:
        if not OWNED:
            _send_to_others(_word(x, word_type), address_ptr, words_ptr, offset, inside, RANK, NUM_RANKS, of_rank)
        rank = tl.arange(0, NUM_RANKS)[:, None]
        others = (rank != RANK) & inside[None, :]
        part = _received(words_ptr + offset[None, :] + rank * of_rank, others).to(dtype, bitcast=True)
        for other in tl.static_range(NUM_RANKS):
            if other != RANK:
                tl.store(words_ptr + offset + other * of_rank, empty, mask=inside)
        y = tl.sum(tl.where(rank == RANK, x.to(tl.float32)[None, :], part.to(tl.float32)), axis=0).to(dtype)
        if OWNED:
            _send_to_others(_word(y, word_type), address_ptr, words_ptr, offset, inside, RANK, NUM_RANKS, of_rank)
    tl.store(half_ptr + row, 1 - half)
    if residual_ptr is not None:
        residual_at = residual_ptr + row * stride_residual + column
        residual = tl.load(residual_at, mask=inside, other=0.0)
        y = (y.to(tl.float32) + residual.to(tl.float32)).to(residual.dtype)
        tl.store(residual_at, y, mask=inside)
    if weight_ptr is not None:
        wide = y.to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / hidden + eps)
        y = (wide * scale * weight).to(dtype)
    tl.store(out_ptr + row * hidden + column, y, mask=inside)
