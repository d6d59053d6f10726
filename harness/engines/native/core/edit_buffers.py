"""Which logit edits a batch needs, and the buffers of the requests' edits.

Legend: V vocabulary, S slots, W bad words, N their tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from enum import Enum

import torch
from torch import Tensor

from specbench.harness.spec.logit_edits import MAX_WORD_TOKENS, MAX_WORDS
from specbench.harness.spec.sampling import SamplingParams


class Edit(Enum):
    """The logit edits that a batch needs; a step has only these operations."""

    BIAS = "bias"  # biases, allowed and banned ids
    WORDS = "words"
    MIN_TOKENS = "min_tokens"
    PENALTIES = "penalties"
    MIN_P = "min_p"
    LOGPROBS = "logprobs"  # computed from the unchanged logits


def edits_of(requests: Iterable[SamplingParams]) -> frozenset[Edit]:
    """The logit edits that these requests need."""
    found: set[Edit] = set()
    for s in requests:
        if s.is_plain:
            continue
        if s.allowed_token_ids or s.banned_token_ids or s.logit_bias:
            found.add(Edit.BIAS)
        if s.bad_words:
            found.add(Edit.WORDS)
        if s.min_tokens and s.stop_token_ids:
            found.add(Edit.MIN_TOKENS)
        if s.repetition_penalty != 1 or s.frequency_penalty or s.presence_penalty:
            found.add(Edit.PENALTIES)
        if s.min_p and s.temperature > 0:
            found.add(Edit.MIN_P)
        if s.logprobs is not None:
            found.add(Edit.LOGPROBS)
    return frozenset(found)


class EditBuffers:
    """The edits of the slots' requests. Allocated when a request first needs them; after that their addresses never
    change."""

    def __init__(self, num_slots: int, device: torch.device):
        self._num_slots, self._device = num_slots, device
        self._has_columns = False
        self.bias_SV: Tensor | None = None
        self.words_SWN: Tensor | None = None

    def make_room(self, edits: Set[Edit], vocab_size: int) -> None:
        """Allocates buffers before the first request or launch with these edits."""
        if edits and not self._has_columns:
            self._has_columns = True
            counts = torch.zeros(2, self._num_slots, dtype=torch.int64, device=self._device)
            self.prompt_len_S, self.first_stop_S = counts
            off = torch.tensor([1.0, 0.0, 0.0, 0.0], device=self._device)
            columns = off.unsqueeze(1).repeat(1, self._num_slots)
            self.repetition_S, self.frequency_S, self.presence_S, self.min_p_S = columns
        if Edit.BIAS in edits and self.bias_SV is None:
            self.bias_SV = torch.zeros(self._num_slots, vocab_size, device=self._device)
        if Edit.WORDS in edits and self.words_SWN is None:
            shape = (self._num_slots, MAX_WORDS, MAX_WORD_TOKENS)
            self.words_SWN = torch.full(shape, -1, dtype=torch.int64, device=self._device)

    def assign(self, slot: int, sampling: SamplingParams, prompt_len: int) -> None:
        """Puts a new request in the slot; edits that are off overwrite the previous ones. Does nothing if no request
        ever had any."""
        if self._has_columns:
            self.prompt_len_S[slot].fill_(prompt_len)
            self.first_stop_S[slot].fill_(prompt_len + sampling.min_tokens)
            self.repetition_S[slot].fill_(sampling.repetition_penalty)
            self.frequency_S[slot].fill_(sampling.frequency_penalty)
            self.presence_S[slot].fill_(sampling.presence_penalty)
            self.min_p_S[slot].fill_(sampling.min_p)
        if self.bias_SV is not None:
            _write(self.bias_SV[slot], _bias(sampling, self.bias_SV.shape[1]))
        if self.words_SWN is not None:
            _write(self.words_SWN[slot], _words(sampling))


def _write(device_X: Tensor, host_X: Tensor) -> None:
    """Copies through pinned memory, so that the host does not wait."""
    device_X.copy_(host_X.pin_memory() if device_X.is_cuda else host_X, non_blocking=True)


def _bias(sampling: SamplingParams, vocab_size: int) -> Tensor:
    """fp32 [V] on the host."""
    bias_V = torch.zeros(vocab_size)
    if sampling.allowed_token_ids:
        bias_V.fill_(-math.inf)
        bias_V[list(sampling.allowed_token_ids)] = 0
    bias_V[list(sampling.banned_token_ids)] = -math.inf
    for token, bias in sampling.logit_bias:
        bias_V[token] += bias
    return bias_V


def _words(sampling: SamplingParams) -> Tensor:
    """int64 [W, N] on the host: each word's tokens end in the last column; -1 before them, and in all of spare rows."""
    words_WN = torch.full((MAX_WORDS, MAX_WORD_TOKENS), -1, dtype=torch.int64)
    for index, word in enumerate(sampling.bad_words):
        words_WN[index, MAX_WORD_TOKENS - len(word) :] = torch.tensor(word)
    return words_WN
