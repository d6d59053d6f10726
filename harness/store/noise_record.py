"""The noise floor of a machine: `noise.json` of an A/A run, and the floors stored for each hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NOISE_SCHEMA = "specbench.noise/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricNoise:
    """cv_in_block: of one side, between back-to-back runs; cv_between_blocks: drift, None if pairs are prompts.
    least_effect: the minimum detectable effect by number of blocks; blocks_needed: by change.
    false_verdicts: share of experiments with identical sides that would report a change."""

    name: str
    pairs: str
    gated: bool
    num_pairs: int
    cv_in_block: float
    cv_between_blocks: float | None
    least_effect: Mapping[str, float]
    blocks_needed: Mapping[str, int | None]
    false_verdicts: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredModel:
    name: str | None
    dtype: str | None
    device: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFloor:
    """The noise floor that an A/A of `arm` showed."""

    measured_utc: str
    run_id: str
    command: str
    arm: str
    model: MeasuredModel
    max_concurrency: int | None
    workload: str | None
    in_process: bool
    num_blocks: int
    num_rejected: int
    verdict: str
    metrics: tuple[MetricNoise, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFile:
    """The floors of one kind of hardware, newest first."""

    schema: str = NOISE_SCHEMA
    hardware: str
    floors: tuple[NoiseFloor, ...]
