"""Whether sides may be compared, whether they are the same, and what they are called."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from specbench.harness.compare.keys import UNKNOWN, Mismatch, mismatches
from specbench.harness.spec.run_config import RunConfig
from specbench.workloads.base import WorkloadRequest

from .plan import NotComparableError

_LOAD = (
    "model",
    "max_concurrency",
    "request_rate",
    "burstiness",
    "temperature",
    "top_k",
    "top_p",
    "ignore_eos",
    "seed",
)
_PROMPTS = dataclasses.fields(WorkloadRequest)


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What two run manifests differ in that keeps their figures from being compared, a line each.

    The keys are those of `specbench compare`. What only one side says anything of is no difference here: both ran on
    this machine just now, and an older revision records less.
    """
    return [m.describe() for m in side_mismatches("", a, b)]


def side_mismatches(run: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Mismatch]:
    """The same key by key, of the sides of the A/B run `run`."""
    return [m for m in mismatches(run, a, b) if UNKNOWN not in (m.first, m.second)]


def same_arm(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two resolved configurations (RunConfig.to_dict of one arm each) ask for the same, whatever its label."""

    def unnamed(config: Mapping[str, Any]) -> dict[str, Any]:
        return {**config, "arms": [{k: v for k, v in arm.items() if k != "label"} for arm in config["arms"]]}

    return unnamed(a) == unnamed(b)


def arm_name(arm: Mapping[str, Any]) -> str:
    """`strategy:key=value,...` of an arm of a configuration, whatever its label."""
    pairs = ",".join(f"{key}={value}" for key, value in {**arm["options"], **arm["engine"]}.items())
    return f"{arm['strategy']}:{pairs}" if pairs else str(arm["strategy"])


def check_same_load(a: RunConfig, b: RunConfig) -> None:
    """NotComparableError where the sides ask for other prompts, sampling or load: before minutes are measured."""
    found = {name: (getattr(a, name), getattr(b, name)) for name in _LOAD}
    found |= {f"dataset {f.name}": (getattr(a.workload, f.name), getattr(b.workload, f.name)) for f in _PROMPTS}
    different = [f"{name}: {one} and {other}" for name, (one, other) in found.items() if one != other]
    if different:
        raise NotComparableError(f"A and B differ in {'; '.join(different)}")


def joined_config(a: RunConfig, b: RunConfig, num_blocks: int) -> RunConfig:
    """Both arms in one run; ValueError where the sides differ in more than the arm."""
    different = [
        field.name
        for field in dataclasses.fields(RunConfig)
        if field.name != "arms" and getattr(a, field.name) != getattr(b, field.name)
    ]
    if different:
        raise ValueError(
            f"in_process: the sides must differ in nothing but their arm, but they do in {', '.join(different)}; "
            "leave --in-process out"
        )
    return dataclasses.replace(a, arms=(*a.arms, *b.arms), num_repeats=num_blocks)
