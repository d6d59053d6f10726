"""Why a run was made: its table, the sweep that it belongs to, and further checks of its arms."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.spec.table_records import Ablation, RecipeRecord
from specbench.harness.store.evaluation_record import EvaluationRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepPoint:
    sweep_id: str
    max_concurrency: int
    num_points: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphCertificates:
    """A trace of `num_rounds` rounds of every arm, after the timed blocks."""

    num_rounds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Purpose:
    """`acceptance`: the source of measured acceptance rates that are forced."""

    recipe: RecipeRecord | None = None
    ablation: Ablation | None = None
    sweep: SweepPoint | None = None
    evaluation: EvaluationRecord | None = None
    certify_graphs: GraphCertificates | None = None
    acceptance: str = ""


NO_PURPOSE = Purpose()
