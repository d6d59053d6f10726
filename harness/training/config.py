"""Options of a training run. Those of its generation half identify the responses on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from specbench.harness.registry import declared_strategies, strategy_class
from specbench.harness.spec.conditions import Conditions
from specbench.harness.spec.fields import Options, changed, option
from specbench.harness.spec.options import OutputOptions

_head = partial(option, group="Head")
_responses = partial(option, group="Responses")
_training = partial(option, group="Training")
_limits = partial(option, group="Limits")
_seed = partial(
    changed, Conditions, "seed", 0, group="Training", help="Seed of prompts, sampling, weights and batches."
)
_Part = TypeVar("_Part", bound=Options)


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(Options):
    """The conversations that the target has, and how it answers."""

    target: str = _head(help="Asset name, hub name, Hugging Face directory or .gguf.")
    data: tuple[str, ...] = _head(
        help="Prompts: sharegpt, gsm8k-train, or a file (.json, .jsonl, .parquet); *N: N samples of each."
    )
    exclude: tuple[str, ...] = _responses(("gsm8k",), "Evaluation data to keep out of training. Default: gsm8k.")
    num_prompts: int = _responses(0, "Maximum number of conversations; 0: all.", least=0)
    max_turns: int = _responses(3, "Human turns per conversation; the target answers each.", least=1)
    max_prompt_tokens: int = _responses(
        640, "A conversation ends when a prompt, earlier turns included, is longer.", unit="tokens", least=1
    )
    max_response_tokens: int = _responses(256, "Maximum tokens of a response.", unit="tokens", least=1)
    samples_per_prompt: int = _responses(2, "Responses per conversation.", least=1)
    greedy_share: float = _responses(0.5, "Share of greedy samples; at most one per conversation.")
    temperature_low: float = _responses(0.7, "Lowest temperature of sampled responses.")
    temperature_high: float = _responses(1.0, "Highest temperature of sampled responses.")
    whole_loop_share: float = 0.1  # looping responses that are kept whole; the others lose their tail
    generate_batch: int = _responses(
        0, "Requests in flight while generating; 0: 512 on a GPU, 8 on a CPU.", unit="requests", least=0
    )
    seed: int = _seed()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data:
            raise ValueError("data: nothing to train on; give --data sharegpt --data gsm8k-train, or files")
        for name in ("greedy_share", "whole_loop_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; allowed: 0 to 1")
        if not 0 < self.temperature_low <= self.temperature_high < math.inf:
            raise ValueError(
                f"temperature: {self.temperature_low} to {self.temperature_high} is not allowed; allowed: above 0, the "
                "lower end first"
            )

    @property
    def fingerprint(self) -> str:
        """Hash of everything that determines the responses; the batch size only changes rounding."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if name != "generate_batch"}
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Options):
    """The head and its optimisation."""

    kind: str | None = _training(
        None, "Strategy that the head is for: one that drafts token by token (default), or all tokens in one pass."
    )
    draft_vocab_size: int = _training(
        12_000, "Size of the draft vocabulary: the most frequent tokens in the responses.", unit="tokens", least=1
    )
    intermediate_size: int = _training(
        0, "Width of the MLP in the head's layer; 0: the target's.", least=0, most=131_072
    )
    unroll: int = _training(
        5, "Consecutive drafts that are trained: on the head's own outputs, or in one pass.", least=1, most=64
    )
    decay: float = _training(0.9, "Weight of an unrolled step relative to the previous one.")
    lr: float = _training(1e-3, "Peak learning rate.")
    warmup_steps: int = 100
    epochs: float = _training(8.0, "Passes over the responses.")
    steps: int = _training(0, "Optimiser steps, instead of epochs; 0: use epochs.", least=0)
    batch_tokens: int = _training(32_768, "Tokens per optimiser step, padding included.", unit="tokens", least=1)
    max_sequence_tokens: int = _training(1024, "Longer sequences are cut.", unit="tokens", least=1)
    clip: float = 1.0
    log_every: int = _training(50, "Optimiser steps between rows of training_log.csv.", least=1)
    checkpoint_every_s: float = 120.0
    seed: int = _seed()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind is not None and not strategy_class(self.kind).takes_head:
            allowed = ", ".join(kind.name for kind in declared_strategies() if kind.takes_head)
            raise ValueError(f"kind: {self.kind!r} has no head; allowed: {allowed}")
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps: {self.warmup_steps} is not allowed; allowed: 0 or more")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay: {self.decay} is not allowed; allowed: above 0, up to 1")
        for name in ("lr", "epochs", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; allowed: above 0, finite")
        if self.max_sequence_tokens > self.batch_tokens:
            raise ValueError(
                f"batch_tokens: {self.batch_tokens} is not allowed; allowed: max_sequence_tokens "
                f"({self.max_sequence_tokens}) or more"
            )

    @property
    def one_pass(self) -> bool:
        return self.kind is not None and strategy_class(self.kind).one_pass


@dataclass(frozen=True, kw_only=True)
class TrainHeadOptions(GenerateConfig, TrainConfig):
    """Options of `specbench train-head`: both halves, the output, and time limits."""

    out: Path = _head(help="Output folder: the head, and everything else below it.")
    responses: Path | None = _responses(None, "Folder of the target's responses, if shared. Default: OUT/responses.")
    budget_s: float = _limits(math.inf, "Time limit of the whole command.", unit="seconds")
    generate_budget_s: float = _limits(
        math.inf, "Time limit for responses; 0: train on the existing ones.", unit="seconds"
    )
    only_responses: bool = _limits(False, "Stop after the responses.")
    dtype: str = changed(Conditions, "dtype")
    device: str = changed(Conditions, "device")
    resume: bool = _head(False, "Resume in OUT with the same options.")
    quiet: bool = changed(OutputOptions, "quiet")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.budget_s > 0:
            raise ValueError(f"budget_s: {self.budget_s} is not allowed; allowed: above 0")
        if not self.generate_budget_s >= 0:
            raise ValueError(f"generate_budget_s: {self.generate_budget_s} is not allowed; allowed: 0 or more")

    @property
    def responses_folder(self) -> Path:
        return self.responses or self.out / "responses"

    def generate(self, target: str, device: str) -> GenerateConfig:
        """The generation half, with the target's canonical name and a batch size for the device."""
        batch = self.generate_batch or (512 if device == "cuda" else 8)
        return dataclasses.replace(_part(self, GenerateConfig), target=target, generate_batch=batch)

    def train(self) -> TrainConfig:
        return _part(self, TrainConfig)


def _part(options: TrainHeadOptions, kind: type[_Part]) -> _Part:
    return kind(**{field.name: getattr(options, field.name) for field in dataclasses.fields(kind)})
