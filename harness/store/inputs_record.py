"""Inputs of a run: model, prompts, sampling and arrival of requests."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from specbench.harness.spec.conditions import RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecord:
    """`sha256`: of the checkpoint's original bytes, empty for random weights. `synthetic`: random weights."""

    name: str | None = None
    dtype: str | None = None
    device: str | None = None
    source: str | None = None
    sha256: str | None = None
    synthetic: bool | None = None
    num_layers: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadRecord:
    """`rule`: how prompts were chosen. `sha256`: of the exact prompts. `num_prompts`: in words for an evaluation, whose
    tasks have a limit each."""

    name: str | None = None
    rule: str | None = None
    source: str | None = None
    sha256: str | None = None
    num_prompts: int | str | None = None
    synthetic: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingRecord:
    """`request_rate`: requests per second; None: as soon as there is room, or not known."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    max_concurrency: int | None = None
    request_rate: float | None = None

    @staticmethod
    def of(config: RunConfig) -> SamplingRecord:
        values = {field.name: getattr(config, field.name) for field in fields(SamplingRecord)}
        return SamplingRecord(**{name: None if value == math.inf else value for name, value in values.items()})
