"""Options of a training run. Those of its generation half identify the responses on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from specbench.harness.spec.conditions import Conditions
from specbench.harness.spec.fields import Options, changed, option
from specbench.harness.spec.options import OutputOptions

_Part = TypeVar("_Part", bound=Options)


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(Options):
    """Which conversations the target holds, and how it answers."""

    target: str = option(help="Asset name, hub name, Hugging Face directory or .gguf.")
    data: tuple[str, ...] = option(
        help="Prompts: sharegpt, gsm8k-train, or a file (.json, .jsonl, .parquet); *N: N samples of each."
    )
    exclude: tuple[str, ...] = option(("gsm8k",), "Evaluation data to keep out of training. Default: gsm8k.")
    num_prompts: int = option(0, "Most conversations; 0: all.", least=0)
    max_turns: int = option(3, "Human turns per conversation; the target answers each.", least=1)
    max_prompt_tokens: int = option(
        640, "A conversation ends when a prompt, earlier turns included, is longer.", unit="tokens", least=1
    )
    max_response_tokens: int = option(256, "Most tokens of a response.", unit="tokens", least=1)
    samples_per_prompt: int = option(2, "Responses per conversation.", least=1)
    greedy_share: float = option(0.5, "Share of greedy samples; at most one per conversation.")
    temperature_low: float = option(0.7, "Lowest temperature of sampled responses.")
    temperature_high: float = option(1.0, "Highest temperature of sampled responses.")
    whole_loop_share: float = 0.1  # looping responses that are kept whole; the others lose their tail
    generate_batch: int = option(
        0, "Requests in flight while generating; 0: 512 on a GPU, 8 on a CPU.", unit="requests", least=0
    )
    seed: int = option(0, "Seed of prompts, sampling, weights and batches.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data:
            raise ValueError("data: nothing to train on; give --data sharegpt --data gsm8k-train, or files")
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
        """Hash of everything that decides the responses; the size of batches only changes rounding."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if name != "generate_batch"}
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Options):
    """The head and its optimisation."""

    draft_vocab_size: int = option(
        12_000, "Tokens that the head can draft: the most frequent ones in the responses.", unit="tokens", least=1
    )
    intermediate_size: int = option(0, "Width of the MLP in the head's layer; 0: the target's.", least=0)
    unroll: int = option(5, "Steps on the head's own outputs while training.", least=1)
    decay: float = option(0.9, "Weight of an unrolled step relative to the one before.")
    lr: float = option(1e-3, "Peak learning rate.")
    warmup_steps: int = 100
    epochs: float = option(8.0, "Passes over the responses.")
    steps: int = option(0, "Optimiser steps, instead of epochs; 0: use epochs.", least=0)
    batch_tokens: int = option(32_768, "Tokens per optimiser step, padding included.", unit="tokens", least=1)
    max_sequence_tokens: int = option(1024, "Longer sequences are cut.", unit="tokens", least=1)
    clip: float = 1.0
    log_every: int = option(50, "Optimiser steps between rows of training_log.csv.", least=1)
    checkpoint_every_s: float = 120.0
    seed: int = option(0, "Seed of prompts, sampling, weights and batches.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps: {self.warmup_steps} is not allowed; must be >= 0")
        for name in ("lr", "epochs", "decay", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; must be > 0 and finite")
        if self.max_sequence_tokens > self.batch_tokens:
            raise ValueError(
                f"batch_tokens: {self.batch_tokens} is not allowed; must hold a sequence of max_sequence_tokens "
                f"({self.max_sequence_tokens})"
            )


@dataclass(frozen=True, kw_only=True)
class TrainHeadOptions(GenerateConfig, TrainConfig):
    """Options of `specbench train-head`: both halves, and where and how long."""

    out: Path = option(help="Output folder: the head, and everything else below it.")
    responses: Path | None = option(None, "Folder of the target's responses, if shared. Default: OUT/responses.")
    budget_s: float = option(math.inf, "Time limit of the whole command.", unit="seconds")
    generate_budget_s: float = option(
        math.inf, "Time limit for responses; 0: train on the existing ones.", unit="seconds"
    )
    only_responses: bool = option(False, "Stop after the responses.")
    dtype: str = changed(Conditions, "dtype", group="")
    device: str = changed(Conditions, "device", group="")
    resume: bool = option(False, "Resume in OUT with the same options.")
    quiet: bool = changed(OutputOptions, "quiet", group="")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.budget_s > 0 or not self.generate_budget_s >= 0:
            raise ValueError(f"budget_s: {self.budget_s} / {self.generate_budget_s} is not allowed; must be > 0 / >= 0")

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
