"""How the tokens of a request are sampled, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .logit_edits import LogitEdits

MAX_LOGPROBS = 20  # likeliest tokens reported with each token: vLLM's default limit
MAX_STOP_IDS = 8  # stop ids per slot on the device


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams(LogitEdits):
    """How tokens are sampled and when a request ends. temperature 0 is greedy; top_k 0 and top_p 1 are off.

    Min-p applies before top-k and top-p, all other LogitEdits before the temperature. logprobs, prompt_logprobs: how
    many of the likeliest tokens get a log-probability besides the token itself; None: no log-probabilities."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    max_tokens: int = 128
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    is_plain: bool = field(init=False, compare=False, repr=False)
    """Whether it neither changes logits nor needs log-probabilities. Computed once, since every round uses it."""

    def at_most(self, max_tokens: int) -> SamplingParams:
        """The same, limited to this many output tokens."""
        most = min(self.max_tokens, max_tokens)
        return replace(self, max_tokens=most, min_tokens=min(self.min_tokens, most))

    def __post_init__(self) -> None:
        LogitEdits.__post_init__(self)  # zero-argument super() fails in a dataclass with slots
        object.__setattr__(self, "is_plain", not self.named and self.logprobs is None)
        if not self.temperature >= 0:
            raise ValueError(f"temperature: {self.temperature} is not allowed; allowed: 0 or more (0 is greedy)")
        if self.top_k < 0:
            raise ValueError(f"top_k: {self.top_k} is not allowed; allowed: 0 or more (0 is off)")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: {self.top_p} is not allowed; allowed: above 0, up to 1")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens: {self.max_tokens} is not allowed; allowed: 1 or more")
        for name in ("logprobs", "prompt_logprobs"):
            if not 0 <= (getattr(self, name) or 0) <= MAX_LOGPROBS:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; allowed: 0 to {MAX_LOGPROBS}")
        if self.min_tokens > self.max_tokens:
            most = f"{self.max_tokens} (max_tokens)"
            raise ValueError(f"min_tokens: {self.min_tokens} is not allowed; allowed: 0 to {most}")
        if len(self.stop_token_ids) > MAX_STOP_IDS:
            raise ValueError(
                f"stop_token_ids: {len(self.stop_token_ids)} ids are not allowed; allowed: 0 to {MAX_STOP_IDS}"
            )
