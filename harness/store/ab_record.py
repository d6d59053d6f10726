"""An A/B experiment in the run record: its plan, fixed before the first block, and its sides."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.environment import Environment, GitState
from specbench.harness.store.inputs_record import ModelRecord, SamplingRecord, WorkloadRecord

LABELS = ("A", "B")


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side: `text` as typed, `words` the options of `specbench run` that measure it, and the code it runs.

    ref, sha: a git revision of the checkout, as typed and as resolved; None for the code that runs this command.
    """

    label: str
    text: str
    words: tuple[str, ...]
    ref: str | None = None
    sha: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AbPlan:
    """Both sides, the number of blocks, and the rules of the verdict. Raises ValueError for invalid values.

    min_effect: the smallest change that matters, a fraction. min_same_output: share of prompts whose tokens must be the
    same on both sides. in_process: both engines live in one process and alternate; otherwise each block of each side
    gets its own process. checkout: where the refs are looked up.
    """

    sides: tuple[Side, Side]
    num_blocks: int = 10
    min_effect: float = 0.01
    min_same_output: float = 0.0
    order_seed: int = 42
    in_process: bool = False
    allow_mismatch: bool = False
    checkout: str | None = None

    def __post_init__(self) -> None:
        if self.num_blocks < 1:
            raise ValueError(f"blocks: {self.num_blocks} is not allowed; allowed: 1 or more (6 or more for a verdict)")
        if not 0 < self.min_effect < 1:
            raise ValueError(f"min_effect: {self.min_effect:g} is not allowed; allowed: above 0% and below 100%")
        if not 0 <= self.min_same_output <= 1:
            raise ValueError(f"min_same_output: {self.min_same_output:g} is not allowed; allowed: 0% to 100%")

    def side(self, label: str) -> Side:
        return self.sides[LABELS.index(label)]

    def order(self) -> list[tuple[str, str]]:
        """Which side goes first in each block: of every two blocks, one starts with A and one with B, in random order.

        Balanced pairs cancel drift over time (a machine warming up) as well as any disadvantage of going first.
        """
        draw = random.Random(self.order_seed)
        order: list[tuple[str, str]] = []
        while len(order) < self.num_blocks:
            first = draw.choice((("A", "B"), ("B", "A")))
            order += [first, (first[1], first[0])]
        return order[: self.num_blocks]


@dataclass(frozen=True, kw_only=True, slots=True)
class SideRecord:
    """What the first process of a side reported. `code_state`: hash of the files it ran, if known."""

    workload: WorkloadRecord | None = None
    model: ModelRecord | None = None
    sampling: SamplingRecord | None = None
    config: RunConfig | None = None
    environment: Environment = Environment()
    git: GitState | None = None
    command: str = ""
    code_state: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AbRecord:
    """`names`: the sides' names, by label. `unchecked`: what could not be watched. `sides`: for blocks in separate
    processes. `code`, `is_aa`, `mismatches`: the code of each side, whether the sides are identical, and what makes
    them not comparable; known at the end. `code_state`: for blocks in one process."""

    plan: AbPlan
    names: Mapping[str, str] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()
    sides: Mapping[str, SideRecord] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    is_aa: bool | None = None
    mismatches: tuple[str, ...] = ()
    code_state: str | None = None
