"""Results of a sweep so far, the content of `crossover.json`, and the goodput of any crossover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

from specbench.harness.judge.crossover_record import crossover_record
from specbench.harness.judge.crossover_samples import LoadPoint
from specbench.harness.metrics.doubts import is_doubt
from specbench.harness.metrics.goodput import REQUESTS_PER_S, SHARE, with_goodput
from specbench.harness.metrics.run_results import results_of
from specbench.harness.roofline.of_run import ideal_arms_of
from specbench.harness.stats.slos import Slos
from specbench.harness.store.crossover_file import Crossover, DescribedMachine, Goodput, LoadCell
from specbench.harness.store.environment import Environment
from specbench.harness.store.results import ArmSummary
from specbench.harness.store.roofline_record import Machine
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.sweep_directory import SweepDirectory


def sweep_record(sweep: SweepDirectory, slos: Slos | None = None) -> Crossover:
    """The crossover of the blocks measured so far, with the identity of the sweep and what it could not run. `slos`:
    with goodput."""
    record, runs = sweep.record, sweep.runs()
    machine = record.machine
    points = [_point(load, run, machine) for load, run in runs.items()]
    families = {arm.label: (arm.family, arm.num_drafts) for arm in record.arms}
    first = next((run.record for run in runs.values()), None)
    whole = replace(
        crossover_record(points, families),
        sweep_id=record.sweep_id,
        status=sweep.status,
        command=record.command,
        asked_loads=record.loads,
        refused=tuple(arm for arm in record.arms if arm.refused),
        notes=record.notes,
        machine=DescribedMachine(**asdict(machine), described=machine.describe()) if machine else None,
        hardware=(first.environment if first else Environment()).describe_hardware(),
        workload=first.workload if first else None,
        model=first.model.name if first and first.model else None,
    )
    return _kept(whole, runs.values(), slos) if slos else whole


def goodput_by_load(record: Crossover, arms: Mapping[tuple[str, str], ArmSummary], slos: Slos) -> Crossover:
    """`arms`: by run and label, with the goodput from `metrics.goodput`; empty without limits."""

    def cell_of(label: str, cell: LoadCell) -> LoadCell:
        arm = arms.get((cell.run, label))
        per_s, share = (arm.median(REQUESTS_PER_S), arm.median(SHARE)) if arm else (None, None)
        known = None if per_s is None or share is None else Goodput(requests_per_s=per_s, share=share)
        return replace(cell, goodput=known)

    found = tuple(replace(arm, points=tuple(cell_of(arm.label, cell) for cell in arm.points)) for arm in record.arms)
    return replace(record, arms=found, slos=slos)


def _kept(record: Crossover, runs: Iterable[RunDirectory], slos: Slos) -> Crossover:
    found = {run.record.run_id: with_goodput(results_of(run), run.frames().requests, slos).arms for run in runs}
    return goodput_by_load(record, {(run, arm.label): arm for run, arms in found.items() for arm in arms}, slos)


def _point(load: int, run: RunDirectory, machine: Machine | None) -> LoadPoint:
    frames = run.frames()
    ideal = ideal_arms_of(run.record, frames, machine) if machine else []
    return LoadPoint(
        load=load,
        run_id=run.record.run_id,
        arms=run.record.arms,
        requests=frames.requests,
        ideal={arm.label: arm for arm in ideal},
        doubts={arm.label: tuple(filter(is_doubt, arm.marks)) for arm in results_of(run).arms},
    )
