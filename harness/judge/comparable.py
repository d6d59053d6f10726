"""Whether sides may be compared, whether they are equal, and their names."""

from __future__ import annotations

from dataclasses import fields, replace

from specbench.harness.exit_codes import NotComparableError
from specbench.harness.judge.keys import UNKNOWN, Described, Mismatch, mismatches
from specbench.harness.spec.conditions import RunConfig
from specbench.workloads.base import WorkloadRequest

_LOAD = (
    "model",
    "max_concurrency",
    "request_rate",
    "burstiness",
    "temperature",
    "top_k",
    "top_p",
    "edits",
    "stop",
    "ignore_eos",
    "seed",
)
_PROMPTS = fields(WorkloadRequest)
ADVICE = "make them equal, or compare with --allow-mismatch"


def differences(a: Described, b: Described) -> list[str]:
    """Differences that make the figures of two runs incomparable, one line each.

    The keys are those of `specbench compare`. A key that only one side records does not count
    as a difference: both ran on this machine just now, and an older revision records less.
    """
    return [m.describe() for m in side_mismatches("", a, b)]


def side_mismatches(run: str, a: Described, b: Described) -> list[Mismatch]:
    """The same, key by key, for the sides of the A/B run `run`."""
    return [m for m in mismatches(run, a, b) if UNKNOWN not in (m.first, m.second)]


def same_arm(a: RunConfig, b: RunConfig) -> bool:
    """Whether two single-arm configurations are equal apart from the label."""
    first, second = (replace(c, arms=tuple(replace(arm, label="") for arm in c.arms)) for c in (a, b))
    return first == second


def check_same_load(a: RunConfig, b: RunConfig) -> None:
    """NotComparableError if the sides have different prompts, sampling or load: raised before anything is measured."""
    found = {name: (getattr(a, name), getattr(b, name)) for name in _LOAD}
    found |= {f"dataset {f.name}": (getattr(a.workload, f.name), getattr(b.workload, f.name)) for f in _PROMPTS}
    different = [f"{name}: {one} and {other}" for name, (one, other) in found.items() if one != other]
    if different:
        raise NotComparableError(f"A and B differ in {'; '.join(different)}; {ADVICE}")


def joined_config(a: RunConfig, b: RunConfig, num_blocks: int) -> RunConfig:
    """Both arms in one run; ValueError if the sides differ in more than the arm."""
    different = [
        field.name
        for field in fields(RunConfig)
        if field.name != "arms" and getattr(a, field.name) != getattr(b, field.name)
    ]
    if different:
        raise ValueError(
            f"in_process: the sides may differ only in their arm, but they also differ in {', '.join(different)}; "
            "leave --in-process out"
        )
    return replace(a, arms=(*a.arms, *b.arms), num_repeats=num_blocks)
