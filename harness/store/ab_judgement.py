"""The judged A/B experiment, `ab.json`: valid blocks, comparisons, verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench.harness.stats.verdict import Comparison
from specbench.harness.store.ab_record import AbPlan
from specbench.harness.store.block_records import MachineSeen

AB_FILE, AB_SCHEMA = "ab.json", "specbench.ab/1"

INVALID = "invalid"  # too many rejected blocks, or a change between identical sides
UNFINISHED = "unfinished"
MIXED = "mixed"  # a metric improved and another regressed: TPOT decides

MAX_REJECTED = 0.2
"""Share of rejected blocks beyond which the whole measurement is invalid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentBlock:
    """`order`: of its sides, as AB. `measured`: whether both sides were. `reasons`: why it was rejected.
    `load_average`: before and after each side; `machine`: what else was observed."""

    block: int
    order: str
    measured: bool
    reasons: tuple[str, ...]
    load_average: Mapping[str, tuple[float | None, ...] | None]
    machine: Mapping[str, MachineSeen] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedArm:
    name: str
    strategy: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedMetric(Comparison):
    """`pairs`: the compared values (A, B). `unknown`: why there are none, if an engine cannot know the figure."""

    pairs: tuple[tuple[float, float], ...] = ()
    unknown: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SameOutput:
    """How many of the `num_pairs` answers to the same prompts are equal; `is_enough`: whether as many as required."""

    num_same: int
    num_pairs: int
    is_enough: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """verdict: of the experiment, the worst of the gated metrics; `mixed` if one improved and another regressed, as
    with more drafts per step: then `product`, the verdict of TPOT, decides. driven_otherwise: why sides that were
    driven differently get no verdict."""

    schema: str = AB_SCHEMA
    run_id: str
    status: str
    plan: AbPlan
    alpha: float
    is_aa: bool
    mismatches: tuple[str, ...] = ()
    driven_otherwise: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    arms: Mapping[str, JudgedArm]
    blocks: tuple[ExperimentBlock, ...]
    num_kept: int
    num_rejected: int
    unchecked: tuple[str, ...] = ()
    metrics: tuple[JudgedMetric, ...]
    same_output: SameOutput
    verdict: str
    product: str
    exit_code: int

    @property
    def decisive(self) -> str:
        """The verdict that counts: the experiment's, or TPOT's if that is mixed."""
        return self.product if self.verdict == MIXED else self.verdict
