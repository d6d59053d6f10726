"""Inputs of a run: model, prompts, sampling and arrival of requests."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specbench.harness.spec.conditions import RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecord:
    """`sha256`: of the checkpoint's original bytes, empty for random weights. `synthetic`: random weights.
    `arithmetic`: how quantized matrices are multiplied; empty: none are quantized, see `dtype`. `num_ranks`: processes
    that shared the model, each on its own device; None: one."""

    name: str | None = None
    dtype: str | None = None
    device: str | None = None
    source: str | None = None
    sha256: str | None = None
    synthetic: bool | None = None
    num_layers: int | None = None
    arithmetic: str = ""
    num_ranks: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadRecord:
    """`rule`: how prompts were chosen. `sha256`: of the exact prompts. `num_prompts`: a text for an evaluation, whose
    tasks have their own limits."""

    name: str | None = None
    rule: str | None = None
    source: str | None = None
    sha256: str | None = None
    num_prompts: int | str | None = None
    synthetic: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingRecord:
    """`temperature`: of all requests; None: unknown, or each prompt was sent at every one of `temperature_grid`.
    `request_rate`: requests per second; None: as soon as there is room, or unknown. `edits`: active edits of the
    logits; empty: none. `stop`: strings that ended an output. `logprobs`, `prompt_logprobs`: number of likeliest tokens
    reported with each token; None: no log-probabilities."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    max_concurrency: int | None = None
    request_rate: float | None = None
    edits: str = ""
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    temperature_grid: tuple[float, ...] = ()

    @property
    def is_sampled(self) -> bool:
        """Whether any request is known to be."""
        return any(self.temperature_grid) or bool(self.temperature)

    @property
    def said_temperature(self) -> str:
        """In words; empty: unknown."""
        if self.temperature_grid:
            return f"temperatures {', '.join(f'{each:g}' for each in self.temperature_grid)}"
        if self.temperature is None:
            return ""
        return f"temperature {self.temperature:g}" if self.temperature else "greedy"

    @staticmethod
    def of(config: RunConfig) -> SamplingRecord:
        return SamplingRecord(
            temperature=None if config.temperature_grid else config.temperature,
            temperature_grid=config.temperature_grid,
            top_k=config.top_k,
            top_p=config.top_p,
            ignore_eos=config.ignore_eos,
            seed=config.seed,
            max_concurrency=config.max_concurrency,
            request_rate=None if config.request_rate == math.inf else config.request_rate,
            edits=config.edits.describe(),
            stop=config.stop,
            logprobs=config.logprobs,
            prompt_logprobs=config.prompt_logprobs,
        )
