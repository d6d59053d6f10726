"""Typed records of `run.json` and `sweep.json`. Frozen: a change makes a new one (`replace`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.table_records import SweepArm
from specbench.harness.store.ab_record import AbRecord
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.environment import Environment, GitState
from specbench.harness.store.evaluation_record import EvaluationRecord
from specbench.harness.store.inputs_record import ModelRecord, SamplingRecord, WorkloadRecord
from specbench.harness.store.masking import to_home
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.results import Results
from specbench.harness.store.roofline_record import Forwards, Machine

RUN_SCHEMA, SWEEP_SCHEMA = "specbench.run/2", "specbench.sweep/2"
STATUSES = ("running", "complete", "interrupted", "failed")
ROWS_VERSION = 2
"""Of what the rows of tables mean. 2: at a request rate, submitted is when due; nothing counts behind a stop string."""
OVER = ("complete", "failed")  # statuses of a run with nothing left to measure


@dataclass(frozen=True, kw_only=True, slots=True)
class Resume:
    resumed_utc: str
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileRecord:
    """Record of a run directory that contains profiles only, and no speed figures."""

    tool: str
    num_rounds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PooledRun:
    """The run that a repeat of a pooled run comes from; `code`: its revision, as the report names it."""

    run_id: str
    started_utc: str
    code: str
    command: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """`config`: as requested; None for a run of another program, and for an experiment before its first block.
    `pooled`: where the repeats of `specbench pool` come from, in their order; else none. `forwards`: the passes of each
    arm's round, by label. `results`: None until the run is closed. `results_sha256`: their hash; None in older records.
    `files`: sha256 by name of the tables from which they were derived. Ids, times and the results' hash are filled in
    when the record is written."""

    schema: str = RUN_SCHEMA
    rows_version: int = 1
    run_id: str = ""
    label: str = ""
    status: str = "running"
    argv: tuple[str, ...]
    command: str = ""
    started_utc: str = ""
    ended_utc: str | None = None
    git: GitState | None = None
    environment: Environment = Environment()
    config: RunConfig | None = None
    model: ModelRecord | None = None
    workload: WorkloadRecord | None = None
    sampling: SamplingRecord | None = None
    arms: tuple[ArmRecord, ...]
    purpose: Purpose = Purpose()
    ab: AbRecord | None = None
    profile: ProfileRecord | None = None
    forwards: Mapping[str, Forwards] = field(default_factory=dict)
    resumes: tuple[Resume, ...] = ()
    pooled: tuple[PooledRun, ...] = ()
    results: Results | None = None
    results_sha256: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    def arm(self, label: str) -> ArmRecord:
        """ValueError for a label that no arm has."""
        found = next((arm for arm in self.arms if arm.label == label), None)
        if found is None:
            labels = [arm.label for arm in self.arms]
            raise ValueError(f"arm: {label!r} is not an arm of this run; allowed: {labels}")
        return found

    @property
    def is_imported(self) -> bool:
        """Whether its figures come from files of another benchmark."""
        return any(arm.imported is not None for arm in self.arms)

    @property
    def measured_config(self) -> RunConfig:
        """The configuration with expanded paths. ValueError for a run without one, which cannot be resumed."""
        if self.config is None:
            raise ValueError(f"config: {self.run_id} has none: its figures were imported, or it was never started")
        return to_home(self.config)

    @property
    def evaluation(self) -> EvaluationRecord | None:
        """The evaluation with expanded paths; None for a run without one."""
        return to_home(self.purpose.evaluation) if self.purpose.evaluation else None


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepLoad:
    """`run`: its directory, relative to the sweep's; None until it was started."""

    max_concurrency: int
    run: str | None = None
    status: str = "pending"


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRecord:
    """`loads`: concurrencies, one run each. `notes`: what was added to the user's input. `purpose`: of every run, apart
    from being a point. `machine`: its limits, once measured. Ids and times are filled in when the directory is
    created."""

    schema: str = SWEEP_SCHEMA
    sweep_id: str = ""
    label: str = ""
    status: str = "running"
    argv: tuple[str, ...]
    command: str = ""
    started_utc: str = ""
    ended_utc: str | None = None
    resumes: tuple[Resume, ...] = ()
    config: RunConfig
    loads: tuple[int, ...]
    arms: tuple[SweepArm, ...]
    notes: tuple[str, ...] = ()
    purpose: Purpose = Purpose()
    machine: Machine | None = None
    points: tuple[SweepLoad, ...] = ()
