"""How the tokens of a request are drawn, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass

MAX_STOP_IDS = 8  # columns of a slot's stop ids on the device


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How tokens are drawn and when a request ends. temperature 0 is greedy; top_k 0 and top_p 1 are off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    max_tokens: int = 128
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature: {self.temperature} is not allowed; must be >= 0 (0 is greedy)")
        if self.top_k < 0:
            raise ValueError(f"top_k: {self.top_k} is not allowed; must be >= 0 (0 is off)")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: {self.top_p} is not allowed; must be in (0, 1]")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens: {self.max_tokens} is not allowed; must be >= 1")
        if len(self.stop_token_ids) > MAX_STOP_IDS:
            raise ValueError(
                f"stop_token_ids: {len(self.stop_token_ids)} ids are not allowed; allowed: at most {MAX_STOP_IDS}"
            )
