"""An arm in the run record: its resolved configuration, its status, and notes for readers of its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from specbench.harness.spec.arm import ArmSetup
from specbench.harness.spec.plans import GraphPlan

FORCED = "synthetic acceptance"  # how the note of an arm with forced acceptance begins
NOT_PLAUSIBLE = "output not plausible"
"""Prefix of the note of an arm whose model predicts plain English hardly better than a uniform guess."""


class Fact(str, Enum):
    """What an engine may not know. Texts and host times, in contrast, come from every engine."""

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
    """The actual state of a deployment, read back and never assumed. None: it does not report this. `config`: its
    resolved configuration, with dotted keys for nested parts. `notes`: for the reader of its row."""

    version: str | None
    graph_mode: str | None
    backend: str | None
    hardware: str | None
    config: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportRecord:
    """The result file of another benchmark. `source`: the benchmark. `baseline`: label of the arm that its factor is
    relative to; None: no factor. `reported`: the file's own totals."""

    source: str
    file: str
    sha256: str
    baseline: str | None = None
    reported: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmRecord:
    """`status`: pending, ok, partial (some blocks failed) or failed; `error`: of the last failed block. `warmup`: its
    outcome. `engine`: what the engine reported; `unknown`: the facts it cannot know, each with the reason. `imported`:
    for figures that were not measured here."""

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
    """Why two arms get no verdict, if their times were taken in different places; empty if in the same place or if an
    older record does not say."""
    first, second = a.config.driven, b.config.driven
    if None in (first, second) or first == second:
        return ""
    return f"{a.label} was driven {first}, {b.label} {second}: a factor between them also reflects how they were driven"
