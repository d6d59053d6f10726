"""Names to lazily imported things: nothing is imported until its name is used, so `--help` and `list` stay fast.

A new strategy, attention backend, workload or report is one file and one line here.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from specbench.harness.text import nearest

T = TypeVar("T", bound="StrategyKind")


class StrategyKind:
    """What a strategy declares, so that no one else knows it by its name.

    A frozen dataclass: its fields are the options of a strategy argument (`eagle:k=4,head=DIR`).
    """

    name: ClassVar[str]
    graph: ClassVar[str]  # the graph plan it asks for where nothing else is said
    is_baseline: ClassVar[bool] = False  # makes no drafts; what others are compared with
    takes_head: ClassVar[bool] = False  # has an option `head`
    can_unpad: ClassVar[bool] = (
        False  # its first drafter pass runs over the verified rows: rejected ones can be left out
    )
    depth_option: ClassVar[str | None] = None  # the option that sets its longest chain of drafts of a round
    most_depth: ClassVar[int] = 8
    default_arm: ClassVar[str] = ""  # measured where the user names no arm
    cover_options: ClassVar[str | None] = None  # its options in a pairwise cover; None: not a strategy of its own there
    same_rounds_as: ClassVar[str | None] = None  # the strategy whose rounds these are, given the same plan

    def __post_init__(self) -> None:
        if self.depth_option and not 1 <= self.depth <= self.most_depth:
            raise ValueError(
                f"{self.name}: {self.depth_option}={self.depth} is not allowed; allowed: 1 to {self.most_depth}"
            )

    @property
    def depth(self) -> int:
        """Drafts of its longest chain."""
        return getattr(self, self.depth_option) if self.depth_option else 0

    @property
    def num_drafts(self) -> int:
        """Rows that a request brings to verification, less one."""
        return self.depth

    @classmethod
    def of(cls: type[T], options: Mapping[str, str]) -> T:
        """From the text values of an argument. ValueError names the key, the value and what is allowed."""
        known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        values: dict[str, str | int] = {}
        for key, text in options.items():
            if key not in known:
                raise ValueError(f"{cls.name}: unknown option {key!r}={text!r}; allowed: {', '.join(known) or 'none'}")
            is_number = isinstance(known[key].default, int)
            if is_number and not text.removeprefix("-").isdecimal():
                raise ValueError(f"{cls.name}: {key}={text!r} is not a whole number")
            values[key] = int(text) if is_number else text
        return cls(**values)


ENGINES: Mapping[str, str] = {
    "specbench": "specbench.harness.engines.native.engine:NativeEngine",
}

STRATEGIES: Mapping[str, str] = {
    "no-spec": "specbench.strategies.no_spec:NoSpec",
    "eagle": "specbench.strategies.eagle:Eagle",
    "eagle-topk": "specbench.strategies.eagle_topk:EagleTopk",
    "naive-eagle": "specbench.strategies.naive_eagle:NaiveEagle",
    "ngram": "specbench.strategies.ngram:Ngram",
    "draft-model": "specbench.strategies.draft_model:DraftModel",
}
BASELINE = next(iter(STRATEGIES))
"""Every speed-up is measured against it: the first arm that runs it, in the same run. Readers of stored runs know it
without an import."""

ATTENTION_BACKENDS: Mapping[str, str] = {
    "torch": "specbench.kernels.attention.torch_attention:TorchAttention",
    "triton": "specbench.kernels.attention.triton_attention:TritonAttention",
    "flash-attention": "specbench.kernels.attention.flash_attention:FlashAttention",
    "flashinfer": "specbench.kernels.attention.flashinfer_attention:FlashInferAttention",
    "flashinfer-xqa": "specbench.kernels.attention.flashinfer_xqa:FlashInferXqa",
}

STATE_UPDATES: Mapping[str, str] = {
    "fused": "specbench.kernels.state_update:FusedStateUpdate",
    "torch": "specbench.kernels.torch_update:TorchStateUpdate",
}

WORKLOADS: Mapping[str, str] = {
    "sharegpt": "specbench.workloads.sharegpt:load",
    "sharegpt-held-out": "specbench.workloads.held_out:load",
    "gsm8k": "specbench.workloads.gsm8k:load",
    "gsm8k-train": "specbench.workloads.gsm8k:load",
    "gsm-symbolic": "specbench.workloads.gsm_symbolic:load",
    "random": "specbench.workloads.random_lengths:load",
    "sharegpt-lengths": "specbench.workloads.sharegpt_lengths:load",
    "jsonl": "specbench.workloads.jsonl:load",
    "hf": "specbench.workloads.hf:load",
    "mt-bench": "specbench.workloads.questions:load_mt_bench",
    "humaneval": "specbench.workloads.questions:load_humaneval",
}


def lookup(table: Mapping[str, str], name: str, kind: str) -> Any:
    """The object registered under `name`. ValueError with the known names, and the nearest one, for an unknown name."""
    if name not in table:
        raise ValueError(f"{kind}: {name!r} is not known{nearest(name, table)}; allowed: {', '.join(table)}")
    module, _, attribute = table[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def strategy_class(name: str) -> type[StrategyKind]:
    """What a strategy declares, before an engine is built. Imports it, and torch with it."""
    return lookup(STRATEGIES, name, "strategy")


def declared_strategies() -> list[type[StrategyKind]]:
    """All of them; those that take a head stand last."""
    return sorted(map(strategy_class, STRATEGIES), key=lambda kind: kind.takes_head)


def head_strategy() -> str:
    """The strategy in which a head is tried on its own: the first that takes one."""
    return next(kind.name for kind in declared_strategies() if kind.takes_head)


def default_arms(has_head: bool) -> list[str]:
    """Arms where the user names none; those with a head only where one is there."""
    return [
        kind.default_arm for kind in declared_strategies() if kind.default_arm and (has_head or not kind.takes_head)
    ]
