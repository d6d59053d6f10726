"""Requests: the user's input, and the scheduler's state of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from specbench.harness.engines.native.core.logprobs import TokenLogprobs
from specbench.harness.spec.sampling import SamplingParams

# Smallest and largest values that a slot can hold and that keep logits finite in fp32; 0 is off.
_RANGES = {
    "temperature": (1e-30, 1e30),
    "repetition_penalty": (1e-30, 1e30),
    "top_k": (1, 2**31 - 1),
    "seed": (-(2**63), 2**63 - 1),
    "stop_token_ids": (-(2**63), 2**63 - 1),
}


class FinishReason(str, Enum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(slots=True, eq=False)
class Request:
    """One request and its place in the engine. The scheduler owns the mutable fields.

    `num_computed` is the host's view of n, the tokens whose target KV is cached; with late status reads the device may
    be ahead of it.
    """

    id: int
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    output_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of the output, if requested
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)  # None: nothing precedes the first
    finish_reason: FinishReason | None = None
    slot: int | None = None
    pages: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_prefill: int = 0  # tokens to prefill before decoding (prompt, or prompt + output after a preemption)
    num_inflight: int = 0  # steps launched and not yet read
    num_preemptions: int = 0
    t_submit_ns: int = 0
    t_first_ns: int = 0
    t_last_ns: int = 0
    t_first_device_ns: int = 0
    t_last_device_ns: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.output_ids)

    @property
    def is_prefilling(self) -> bool:
        return self.num_computed < self.num_prefill

    def keep_logprobs(self, columns: list[list[float]]) -> None:
        """Keeps log-probabilities of tokens that the host has just read, if requested."""
        if (num := self.sampling.logprobs) is not None:
            self.logprobs += [TokenLogprobs.of(each, num) for each in columns]

    def check_prompt(self, max_model_len: int, vocab_size: int) -> None:
        """ValueError for a prompt that an engine of this length and vocabulary cannot take."""
        longest = max_model_len - 1
        if not 1 <= len(self.prompt_ids) <= longest:
            raise ValueError(
                f"prompt: request {self.id} has {len(self.prompt_ids)} tokens; allowed: 1 to {longest} "
                f"(max_model_len {max_model_len} less one output token)"
            )
        if not all(0 <= token < vocab_size for token in self.prompt_ids):
            raise ValueError(f"prompt: request {self.id} has token ids outside 0..{vocab_size - 1}")
        for name, (low, high) in _RANGES.items():
            given = getattr(self.sampling, name)
            values = given if isinstance(given, tuple) else (given,)
            if value := next((each for each in values if each and not low <= each <= high), 0):
                nearest = min(max(value, low), high)
                raise ValueError(f"{name}: {value} of request {self.id} is not allowed; nearest allowed: {nearest}")
        self.sampling.check_ids(vocab_size)
        if self.sampling.min_tokens and (unknown := [t for t in self.sampling.stop_token_ids if t >= vocab_size]):
            raise ValueError(f"min_tokens: stop token {unknown[0]} is not allowed; the model has 0 to {vocab_size - 1}")

    def limit(self, max_model_len: int) -> int:
        """Maximum tokens (prompt and output) of this request."""
        return min(len(self.prompt_ids) + self.sampling.max_tokens, max_model_len)
