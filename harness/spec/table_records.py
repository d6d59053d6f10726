"""Records of the tables that a run is made for: of a recipe, an ablation, or the arms of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .recipe_files import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRow:
    """`label`: of the arm that was measured for this row. `baseline`: whether the rows below are compared with it."""

    name: str
    label: str
    baseline: bool = False
    claim: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRecord:
    """`sha256`: of the recipe's file."""

    name: str
    sha256: str
    report: Report
    rows: tuple[RecipeRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AblationRow:
    """One switch changed. `label`: of its arm, None if `refused` says why it cannot run."""

    switch: str
    value: str
    label: str | None = None
    refused: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """A base arm, which has the first row, with one switch changed at a time."""

    base: str
    summary: str
    rows: tuple[AblationRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepArm:
    """`family`: the strategy argument without its number of drafts. `refused`: why the arm cannot run, or empty."""

    label: str
    family: str
    num_drafts: int | None = None
    refused: str = ""
