"""Which logit edits a batch needs, and the buffers of the requests' edits.

Legend: V vocabulary, S slots, W bad words, N their tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from enum import Enum

import torch
from torch import Tensor

from specbench.harness.engines.native.core.slot_memory import Field, SlotMemory
from specbench.harness.engines.native.core.upload import send_into
from specbench.harness.spec.logit_edits import MAX_WORD_TOKENS, MAX_WORDS
from specbench.harness.spec.sampling import SamplingParams

_NO_TOKEN = -1  # in bad words


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


EDIT_FIELDS = {
    "prompt_len_S": Field(torch.int64),
    "first_stop_S": Field(torch.int64),
    "repetition_S": Field(torch.float32, initial=1),
    "frequency_S": Field(torch.float32),
    "presence_S": Field(torch.float32),
    "min_p_S": Field(torch.float32),
}
"""Numbers of each slot's request, which are written with the rest of it (state.py)."""


def edit_fields(sampling: SamplingParams, prompt_len: int) -> tuple[float, ...]:
    """Their values, in this order; edits that are off overwrite those of the slot's last request."""
    return (
        prompt_len,
        prompt_len + sampling.min_tokens,
        sampling.repetition_penalty,
        sampling.frequency_penalty,
        sampling.presence_penalty,
        sampling.min_p,
    )


class EditBuffers:
    """The edits of the slots' requests. What is large is allocated when a request first needs it; addresses never
    change."""

    def __init__(self, memory: SlotMemory, num_slots: int, device: torch.device):
        """`memory` has the EDIT_FIELDS."""
        self._num_slots, self._device = num_slots, device
        self.prompt_len_S, self.first_stop_S = memory["prompt_len_S"], memory["first_stop_S"]
        self.repetition_S, self.min_p_S = memory["repetition_S"], memory["min_p_S"]
        self.frequency_S, self.presence_S = memory["frequency_S"], memory["presence_S"]
        self.bias_SV: Tensor | None = None
        self.words_SWN: Tensor | None = None

    def make_room(self, edits: Set[Edit], vocab_size: int) -> None:
        """Allocates buffers before the first request or launch with these edits."""
        if Edit.BIAS in edits and self.bias_SV is None:
            self.bias_SV = torch.zeros(self._num_slots, vocab_size, device=self._device)
        if Edit.WORDS in edits and self.words_SWN is None:
            shape = (self._num_slots, MAX_WORDS, MAX_WORD_TOKENS)
            self.words_SWN = torch.full(shape, _NO_TOKEN, dtype=torch.int64, device=self._device)

    def assign(self, slot: int, sampling: SamplingParams) -> None:
        """Puts a new request's biases and bad words in the slot, or none over those of the last one. Does nothing if no
        request ever had any."""
        edits = edits_of([sampling])
        if self.bias_SV is not None:
            if Edit.BIAS in edits:
                send_into(self.bias_SV[slot], _bias(sampling, self.bias_SV.shape[1]))
            else:
                self.bias_SV[slot].zero_()
        if self.words_SWN is not None:
            if Edit.WORDS in edits:
                send_into(self.words_SWN[slot], _words(sampling))
            else:
                self.words_SWN[slot].fill_(_NO_TOKEN)


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
    words_WN = torch.full((MAX_WORDS, MAX_WORD_TOKENS), _NO_TOKEN, dtype=torch.int64)
    for index, word in enumerate(sampling.bad_words):
        words_WN[index, MAX_WORD_TOKENS - len(word) :] = torch.tensor(word)
    return words_WN
