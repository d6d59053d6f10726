"""What a training run is asked to do, checked once; its generation half names the responses on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

_AT_LEAST_ONE = (
    "max_turns",
    "max_prompt_tokens",
    "max_response_tokens",
    "samples_per_prompt",
    "generate_batch",
    "unroll",
    "batch_tokens",
    "max_sequence_tokens",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateConfig:
    """Which conversations the target is asked to hold, and how it answers.

    data: names or paths, each with an optional `*N` for N samples a conversation. exclude: data whose texts must never
    be trained on. num_prompts: most conversations; 0 is all.
    """

    target: str
    data: tuple[str, ...]
    exclude: tuple[str, ...] = ("gsm8k",)
    num_prompts: int = 0
    max_turns: int = 3
    max_prompt_tokens: int = 640
    max_response_tokens: int = 256
    samples_per_prompt: int = 2
    greedy_share: float = 0.5  # of all samples; a conversation is answered greedily at most once
    temperature_low: float = 0.7
    temperature_high: float = 1.0
    whole_loop_share: float = 0.1  # looping responses that are kept whole; the others lose their tail
    generate_batch: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        _check_least(self)
        if not self.data:
            raise ValueError("data: nothing to train on; give --data sharegpt --data gsm8k-train, or files")
        if self.num_prompts < 0:
            raise ValueError(f"num_prompts: {self.num_prompts} is not allowed; must be >= 0 (0 is all)")
        for name in ("greedy_share", "whole_loop_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; must be 0 to 1")
        if not 0 < self.temperature_low <= self.temperature_high < math.inf:
            raise ValueError(
                f"temperature: {self.temperature_low} to {self.temperature_high} is not allowed; must be > 0, the "
                "lower end first"
            )

    @property
    def fingerprint(self) -> str:
        """Stands for everything that decides the responses; the size of batches only changes rounding."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if name != "generate_batch"}
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """The head and its optimisation. `steps` 0: as many as `epochs` give. `intermediate_size` 0: the target's."""

    draft_vocab_size: int = 12_000
    intermediate_size: int = 0
    unroll: int = 5
    decay: float = 0.9  # weight of an unrolled step relative to the one before
    lr: float = 1e-3
    warmup_steps: int = 100
    epochs: float = 8.0
    steps: int = 0
    batch_tokens: int = 32_768
    max_sequence_tokens: int = 1024
    clip: float = 1.0
    log_every: int = 50
    checkpoint_every_s: float = 120.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check_least(self)
        for name in ("draft_vocab_size", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; must be >= 1")
        for name in ("intermediate_size", "steps", "warmup_steps"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; must be >= 0")
        for name in ("lr", "epochs", "decay", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; must be > 0 and finite")
        if self.max_sequence_tokens > self.batch_tokens:
            raise ValueError(
                f"batch_tokens: {self.batch_tokens} is not allowed; must hold a sequence of max_sequence_tokens "
                f"({self.max_sequence_tokens})"
            )

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _check_least(config: GenerateConfig | TrainConfig) -> None:
    for name in _AT_LEAST_ONE:
        value = getattr(config, name, 1)
        if value < 1:
            raise ValueError(f"{name}: {value} is not allowed; must be >= 1")
