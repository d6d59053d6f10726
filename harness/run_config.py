"""What a run is asked to do, resolved into frozen dataclasses that stand whole in the run record."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specbench.workloads.base import WorkloadRequest

# Keys of a strategy argument that belong to the engine; all others are the strategy's own.
ENGINE_KEYS = ("graph", "sync", "attention", "drafter", "status_lag", "acceptance")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmConfig:
    """One row of the table: a strategy with its options, and the switches of its engine as asked for."""

    label: str
    strategy: str
    options: dict[str, str] = field(default_factory=dict)
    engine: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything that decides what is measured. `arms` run interleaved over `num_repeats`."""

    arms: tuple[ArmConfig, ...]
    workload: WorkloadRequest
    model: str = "smollm2-135m-instruct"
    load_format: str = "auto"  # auto | dummy
    num_layers: int | None = None  # dummy weights only
    dtype: str = "auto"
    device: str = "auto"
    max_concurrency: int = 1
    request_rate: float = float("inf")
    burstiness: float = 1.0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 42
    num_repeats: int = 3
    warmup_window_s: float = 0.5
    warmup_max_s: float = 8.0
    max_num_batched_tokens: int = 2048
    page_size: int = 0  # 0: 16 on a GPU, 128 on a CPU
    num_pages: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("load_format", ("auto", "dummy")), ("device", ("auto", "cpu", "cuda"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: {getattr(self, name)!r} is not known; allowed: {', '.join(allowed)}")
        if self.dtype not in ("auto", "bfloat16", "float32"):
            raise ValueError(f"dtype: {self.dtype!r} is not known; allowed: auto, bfloat16, float32")
        for name in ("max_concurrency", "num_repeats", "max_num_batched_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; must be >= 1")
        if not self.request_rate > 0:
            raise ValueError(f"request_rate: {self.request_rate} is not allowed; must be > 0 (inf: all at once)")
        if self.num_layers is not None and self.load_format != "dummy":
            raise ValueError("num_layers: needs --load-format dummy (a checkpoint keeps all its layers)")
        labels = [arm.label for arm in self.arms]
        if not labels or len(set(labels)) != len(labels):
            raise ValueError(f"strategy: every arm must differ and there must be one; got {labels}")

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> RunConfig:
        """The config of a stored run."""
        values = dict(raw)
        values["arms"] = tuple(ArmConfig(**arm) for arm in raw["arms"])
        values["workload"] = WorkloadRequest(**raw["workload"])
        values["stop_token_ids"] = tuple(raw["stop_token_ids"])
        values["request_rate"] = float(raw["request_rate"])
        return RunConfig(**values)


def parse_arm(text: str, defaults: Mapping[str, str]) -> ArmConfig:
    """`name` or `name:key=value,key=value`; `defaults` are engine keys given for all arms.

    Raises ValueError for a pair without `=` or a key given twice.
    """
    strategy, _, body = text.partition(":")
    options: dict[str, str] = {}
    engine = {key: value for key, value in defaults.items() if value is not None}
    seen: set[str] = set()
    for pair in filter(None, body.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not value:
            raise ValueError(f"strategy: {text!r}: {pair!r} is not key=value")
        if key in seen:
            raise ValueError(f"strategy: {text!r}: {key} is given twice")
        seen.add(key)
        (engine if key in ENGINE_KEYS else options)[key] = value
    return ArmConfig(label=text, strategy=strategy, options=options, engine=engine)
