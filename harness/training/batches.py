"""Batches of sequences of similar length, in an order set by seed and epoch, and the rows that have a loss in each
unrolled step.

Legend: B sequences, T padded length, Q rows whose target distribution is needed, R rows with a loss (of one unrolled
step, or of all), k unrolled step from 0. Row numbers index the flattened [B * T].

Row p takes the target's feature of token p and the embedding of token p+1+k; it learns the distribution that the target
gives after token p+1+k. It has a loss only if token p+1 (the pending one at that point) and token p+2+k are both
response tokens, because these are exactly the tokens that an engine drafts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .shards import Sequences

_LENGTH_STEP = 32  # padded lengths are multiples of this


@dataclass(frozen=True, slots=True)
class Batch:
    """One optimiser step's data; padding is at the end of each sequence, where causal attention never sees it."""

    ids_BT: Tensor  # int64
    target_row_Q: Tensor  # int64, flat rows whose next-token distribution is learned
    loss_row_R: tuple[Tensor, ...]  # for each k: int64 flat rows
    loss_target_R: tuple[Tensor, ...]  # for each k: int64 indices into target_row_Q
    num_tokens: int  # without padding

    def to(self, device: torch.device) -> Batch:
        def move(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor

        ids_BT, target_row_Q = move(self.ids_BT), move(self.target_row_Q)
        rows, targets = (tuple(map(move, tensors)) for tensors in (self.loss_row_R, self.loss_target_R))
        return Batch(ids_BT, target_row_Q, rows, targets, self.num_tokens)


class Batches:
    """The same batches in every epoch, so that the target's outputs for a batch can be cached.

    `plan(epoch)` gives the batch numbers in the order of that epoch; `make` builds one batch.
    """

    def __init__(self, sequences: Sequences, batch_tokens: int, max_sequence_tokens: int, unroll: int, seed: int):
        self._sequences = sequences
        self._batch_tokens = batch_tokens
        self._most = max_sequence_tokens
        self._unroll = unroll
        self._seed = seed
        self._length_N = sequences.lengths(max_sequence_tokens)
        self.members = self._cut()

    def __len__(self) -> int:
        return len(self.members)

    def plan(self, epoch: int) -> list[int]:
        return np.random.default_rng([self._seed, epoch]).permutation(len(self)).tolist()

    def _cut(self) -> list[np.ndarray]:
        """The sequences of each batch, by index. A batch of two or more has at most `batch_tokens` padded tokens."""
        rng = np.random.default_rng(self._seed)
        order = np.lexsort((rng.random(len(self._length_N)), padded(self._length_N)))
        batches, first = [], 0
        while first < len(order):
            # Lengths ascend, so the last sequence of a batch decides its padding.
            last = first + 1
            while (
                last < len(order)
                and (last + 1 - first) * int(padded(self._length_N[order[last]])) <= self._batch_tokens
            ):
                last += 1
            batches.append(order[first:last])
            first = last
        return batches

    def make(self, number: int) -> Batch:
        numbers = self.members[number]
        s, num = self._sequences, len(numbers)
        width = int(padded(int(self._length_N[numbers].max())))
        ids_BT = np.zeros((num, width), dtype=np.int64)
        response_BT = np.zeros((num, width + self._unroll + 2), dtype=bool)
        for row, sequence in enumerate(numbers):
            start, length = s.offset_N1[sequence], int(self._length_N[sequence])
            ids_BT[row, :length] = s.token_T[start : start + length]
            response_BT[row, :length] = s.is_response_T[start : start + length]
        rows, wanted = _loss_rows(response_BT, width, self._unroll)
        needed = np.zeros(num * width, dtype=bool)
        for flat_rows in wanted:
            needed[flat_rows] = True
        target_row_Q = np.flatnonzero(needed)
        place = np.cumsum(needed) - 1
        return Batch(
            torch.from_numpy(ids_BT),
            torch.from_numpy(target_row_Q),
            tuple(torch.from_numpy(r) for r in rows),
            tuple(torch.from_numpy(place[t]) for t in wanted),
            int(self._length_N[numbers].sum()),
        )


def padded(length):
    """A length (or an array of them) rounded up to a multiple of `_LENGTH_STEP`."""
    return -(-length // _LENGTH_STEP) * _LENGTH_STEP


def _loss_rows(response_BT: np.ndarray, width: int, unroll: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For each k: the flat rows that have a loss, and the flat rows whose distributions they learn."""
    rows, wanted = [], []
    for k in range(unroll):
        both = response_BT[:, 1 : width + 1] & response_BT[:, 2 + k : width + 2 + k]
        sequence, place = np.nonzero(both)
        rows.append(sequence * width + place)
        wanted.append(sequence * width + place + 1 + k)
    return rows, wanted
