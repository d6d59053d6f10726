"""What `sweep.json` says: what is swept, what cannot run, and how far each load is."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.spec.run_config import RunConfig
from specbench.harness.spec.table_records import SweepArm
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.roofline_record import Machine
from specbench.harness.store.run_record import Resume

SWEEP_SCHEMA = "specbench.sweep/2"


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepLoad:
    """`run`: its directory, seen from the sweep's; None until it was begun."""

    max_concurrency: int
    run: str | None = None
    status: str = "pending"


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRecord:
    """`loads`: most requests at once, one run each. `notes`: what the user did not type and should know. `purpose`: of
    every run, beside being a point. `machine`: its limits, once they were measured. Ids and times are filled in when
    the directory is made."""

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
