"""What a run is asked to do, resolved into a frozen dataclass that stands whole in the run record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .arm import ArmConfig
from .options import Conditions


@dataclass(frozen=True, kw_only=True)
class RunConfig(Conditions):
    """Everything that decides what is measured. `arms` run interleaved over `num_repeats`."""

    arms: tuple[ArmConfig, ...]
    warmup_window_s: float = 0.5

    @staticmethod
    def of_arms(conditions: Conditions, arms: Sequence[ArmConfig], **changes: Any) -> RunConfig:
        """These arms under the conditions, some of which may be changed."""
        return RunConfig(arms=tuple(arms), **{**conditions.conditions(), **changes})  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.warmup_window_s < math.inf:
            raise ValueError(f"warmup_window_s: {self.warmup_window_s} is not allowed; must be > 0 and finite")
        labels = [arm.label for arm in self.arms]
        if not labels:
            raise ValueError("strategy: there must be at least one arm")
        twice = [label for label in labels if labels.count(label) > 1]
        if twice:
            raise ValueError(f"strategy: {twice[0]!r} is given twice; every arm must differ")
