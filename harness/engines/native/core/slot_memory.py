"""What the host writes of a request, for all slots in one buffer: whatever a step admits is one upload and one scatter.

A write of its own for each field would cost the host a dozen launches a request. Biases and bad words are still one
copy a request.

Legend: S slots, L tokens of a slot, W words of the buffer (32 bits), F words of a slot's fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specbench.harness.engines.native.core.upload import send

_WORD_BYTES = 4
_ALIGNED_WORDS = 4  # Triton would compile a second kernel for tensors that are not aligned to 16 bytes
_PACKED = {torch.int32: "i", torch.int64: "q", torch.float32: "f"}


@dataclass(frozen=True, slots=True)
class Field:
    """One value, or a row of `width`, for each slot."""

    dtype: torch.dtype
    width: int | None = None
    initial: float = 0


class SlotMemory:
    """`tokens_SL` (int64) and each field as a dense tensor of its own. Their addresses never change."""

    def __init__(self, num_slots: int, num_tokens: int, fields: Mapping[str, Field], device: torch.device):
        every = {"tokens_SL": Field(torch.int64, num_tokens), **fields}
        words = {name: _words_of(field) for name, field in every.items()}  # of one slot
        starts, end = {}, 0
        for name, size in words.items():
            starts[name] = end
            end += -(-num_slots * size // _ALIGNED_WORDS) * _ALIGNED_WORDS
        self._words_W = torch.zeros(end, dtype=torch.int32, device=device)
        self._tensors = {}
        for name, field in every.items():
            part_W = self._words_W[starts[name] : starts[name] + num_slots * words[name]]
            shape = (num_slots,) if field.width is None else (num_slots, field.width)
            self._tensors[name] = part_W.view(field.dtype).view(shape)
            if field.initial:
                self._tensors[name].fill_(field.initial)
        # Written by as few calls as possible: an admission comes seldom enough to find caches cold, so that each
        # costs the host ten times what it does in a loop.
        self._record = struct.Struct("=" + "".join(f"{_width(f)}{_PACKED[f.dtype]}" for f in fields.values()))
        slot_S1 = np.arange(num_slots)[:, None]
        self._at_SF = np.concatenate(
            [starts[name] + slot_S1 * words[name] + np.arange(words[name]) for name in fields], axis=1
        )
        self._words_of_tokens = words["tokens_SL"]

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def write(self, slots: Sequence[int], tokens: Sequence[Sequence[int]], fields: Sequence[tuple[float, ...]]) -> None:
        """Each slot's first tokens and all values of its fields, in their order. Queued behind the steps that were
        launched so far."""
        assert len(set(slots)) == len(slots), "a word is written once: a scatter has no order"
        count = len(slots) * self._at_SF.shape[1] + 2 * sum(map(len, tokens))
        # Addresses and words in one array, since a second copy would cost as much as the first.
        host = np.empty(3 * count, dtype=np.int32)
        at, words, end = host[: 2 * count].view(np.int64), host[2 * count :], 0
        for slot, ids, values in zip(slots, tokens, fields, strict=True):
            assert 2 * len(ids) <= self._words_of_tokens, "more tokens than a slot has room for"
            first, middle = end, end + self._at_SF.shape[1]
            end = middle + 2 * len(ids)
            at[first:middle] = self._at_SF[slot]
            self._record.pack_into(words.data, first * _WORD_BYTES, *values)
            token_at = slot * self._words_of_tokens
            at[middle:end] = np.arange(token_at, token_at + 2 * len(ids))
            words[middle:end].view(np.int64)[:] = ids
        sent = send(torch.from_numpy(host), self._words_W.device)
        self._words_W.index_copy_(0, sent[: 2 * count].view(torch.int64), sent[2 * count :])


def _width(field: Field) -> int:
    return 1 if field.width is None else field.width


def _words_of(field: Field) -> int:
    return _width(field) * field.dtype.itemsize // _WORD_BYTES
