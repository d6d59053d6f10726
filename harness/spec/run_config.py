"""What a run is asked to do, resolved into a frozen dataclass that stands whole in the run record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .arm import ArmConfig
from .options import Conditions

# A workload was a table of its own in records written before its options stood flat; as it named them.
_NESTED = {"name": "dataset_name", "path": "dataset_path"}


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

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> RunConfig:
        """The config of a stored run. Raises ValueError for one that this version did not write."""
        values = dict(raw)
        nested = values.pop("workload", {})
        values |= {_NESTED.get(name, name): value for name, value in nested.items() if name != "vocab_size"}
        try:
            values["arms"] = tuple(ArmConfig(**arm) for arm in raw["arms"])
            values["stop_token_ids"] = tuple(raw["stop_token_ids"])
            # JSON has no infinity: it is stored as null.
            values["request_rate"] = math.inf if raw["request_rate"] is None else float(raw["request_rate"])
            return RunConfig(**values)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"config: run.json was not written by this version ({error}); use the specbench that wrote it"
            ) from error
