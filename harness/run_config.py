"""What a run is asked to do, resolved into frozen dataclasses that stand whole in the run record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specbench.harness.engine.request import SamplingParams
from specbench.workloads.base import WorkloadRequest

# Keys of a strategy argument that belong to the engine; all others are the strategy's own.
GRAPH_PART_KEYS = ("graph_target", "graph_first", "graph_later", "graph_mixed")
ENGINE_KEYS = (
    "graph",
    *GRAPH_PART_KEYS,
    "sync",
    "attention",
    "attention_drafter",
    "drafter",
    "state_update",
    "status_lag",
    "acceptance",
)

_CHOICES = {
    "ranges": ("off", "nvtx"),
    "load_format": ("auto", "dummy"),
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("auto", "bfloat16", "float32"),
}
_LEAST = {"max_concurrency": 1, "num_repeats": 1, "max_num_batched_tokens": 1, "seed": 0, "num_layers": 1}
MAX_PAGE_SIZE = 128  # what the kernels' tests cover


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmConfig:
    """One row of the table: a strategy with its options, and the switches of its engine as asked for."""

    label: str
    strategy: str
    options: dict[str, str] = field(default_factory=dict)
    engine: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything that decides what is measured. `arms` run interleaved over `num_repeats`.

    Raises ValueError naming the field, its value and what is allowed, before anything is loaded.
    """

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
    ranges: str = "off"  # nvtx: named ranges around phases, for nsys and the torch profiler
    page_size: int = 0  # 0: 16 on a GPU, 128 on a CPU
    num_pages: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: {getattr(self, name)!r} is not known; allowed: {', '.join(allowed)}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}: {value} is not allowed; must be >= {least}")
        if not self.model:
            raise ValueError("model: is empty; give an asset name, a hub name, a directory or a .gguf file")
        if self.num_layers is not None and self.load_format != "dummy":
            raise ValueError("num_layers: needs --load-format dummy (a checkpoint keeps all its layers)")
        self._check_load()
        self._check_pages()
        self._check_arms()

    def _check_load(self) -> None:
        if not self.request_rate > 0:
            raise ValueError(f"request_rate: {self.request_rate} is not allowed; must be > 0 (inf: all at once)")
        for name in ("burstiness", "warmup_window_s", "warmup_max_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; must be > 0 and finite")
        if not math.isfinite(self.temperature):
            raise ValueError(f"temperature: {self.temperature} is not allowed; must be >= 0 and finite (0 is greedy)")
        SamplingParams(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        if any(token < 0 for token in self.stop_token_ids):
            raise ValueError(f"stop_token_id: {min(self.stop_token_ids)} is not allowed; must be >= 0")

    def _check_pages(self) -> None:
        if not 0 <= self.page_size <= MAX_PAGE_SIZE:
            raise ValueError(
                f"page_size: {self.page_size} is not allowed; allowed: 1 to {MAX_PAGE_SIZE}, or 0 for the device's "
                "default"
            )
        if self.num_pages is not None and self.num_pages < 2:
            raise ValueError(f"num_pages: {self.num_pages} is not allowed; must be >= 2 (one is the dummy page)")

    def _check_arms(self) -> None:
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
        try:
            values["arms"] = tuple(ArmConfig(**arm) for arm in raw["arms"])
            values["workload"] = WorkloadRequest(**raw["workload"])
            values["stop_token_ids"] = tuple(raw["stop_token_ids"])
            # JSON has no infinity: it is stored as null.
            values["request_rate"] = float("inf") if raw["request_rate"] is None else float(raw["request_rate"])
            return RunConfig(**values)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"config: run.json was not written by this version ({error}); use the specbench that wrote it"
            ) from error


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
