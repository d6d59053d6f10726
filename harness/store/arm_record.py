"""An arm in the run record: its resolved configuration, its status, and notes for readers of its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from specbench.harness.spec.arm import ArmSetup
from specbench.harness.spec.plans import GraphPlan

NOT_PLAUSIBLE = "output not plausible"
"""How the note of an arm begins whose model knows plain English hardly better than a uniform guess."""


class Fact(str, Enum):
    """What an engine may not know: figures are made of it besides texts and host times, which every engine gives."""

    TOKEN_IDS = "token_ids"
    DEVICE_TIMES = "device_times"
    ROUNDS = "rounds"  # steps of the engine with their times and sizes
    ACCEPTANCE = "acceptance"
    PHASES = "phases"
    GRAPHS = "graphs"
    SYNCS = "syncs"
    PREEMPTIONS = "preemptions"
    SCORES = "scores"


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFacts:
    """A deployment as it turned out to be, read back and never assumed. None: it does not tell. `config`: its resolved
    configuration, keys of nested parts behind dots. `notes`: what a reader of its row must know."""

    version: str | None
    graph_mode: str | None
    backend: str | None
    hardware: str | None
    config: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportRecord:
    """The result file of another benchmark. `source`: which. `baseline`: label of the arm that its factor is against;
    None: it has none. `reported`: the file's own totals."""

    source: str
    file: str
    sha256: str
    baseline: str | None = None
    reported: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmRecord:
    """`status`: pending, ok, partial (some blocks failed) or failed; `error`: of the last block that failed. `warmup`:
    how it went. `engine`: what it said of itself; `unknown`: what it cannot know, each with the reason. `imported`: of
    figures that were not measured here."""

    label: str
    strategy: str = ""
    config: ArmSetup = ArmSetup()
    graph_parts: GraphPlan | None = None
    notes: tuple[str, ...] = ()
    status: str = "pending"
    error: str = ""
    warmup: str | None = None
    engine: EngineFacts | None = None
    unknown: Mapping[Fact, str] = field(default_factory=dict)
    imported: ImportRecord | None = None


def driven_otherwise(a: ArmRecord, b: ArmRecord) -> str:
    """Why figures of two arms give no verdict if their times were taken in different places; empty if in the same place
    or if an older record does not say."""
    first, second = a.config.driven, b.config.driven
    if None in (first, second) or first == second:
        return ""
    return (
        f"{a.label} was driven {first}, {b.label} {second}: a factor between them is also one of how they were driven"
    )
