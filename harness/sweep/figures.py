"""What a sweep has shown so far, as plain data: the content of `crossover.json`."""

from __future__ import annotations

from typing import Any

from specbench.harness.judge.crossover_record import crossover_record
from specbench.harness.judge.crossover_samples import LoadPoint
from specbench.harness.roofline.machine import Machine
from specbench.harness.roofline.of_run import ideal_arms_of
from specbench.harness.store.environment import hardware_line
from specbench.harness.store.files import to_plain
from specbench.harness.store.run_directory import RunDirectory

from .record import SweepDirectory


def sweep_record(sweep: SweepDirectory) -> dict[str, Any]:
    """The crossover of the blocks measured so far, with what identifies the sweep and what it could not run."""
    manifest, runs = sweep.manifest, sweep.runs()
    machine = Machine.from_dict(manifest["machine"]) if manifest["machine"] else None
    points = [_point(load, run, machine) for load, run in runs.items()]
    families = {arm["label"]: (arm["family"], arm["num_drafts"]) for arm in manifest["arms"]}
    first = next(iter(runs.values())).manifest if runs else {}
    return {
        **crossover_record(points, families),
        "sweep_id": manifest["sweep_id"],
        "status": manifest["status"],
        "command": manifest["command"],
        "asked_loads": sweep.loads,
        "refused": [arm for arm in manifest["arms"] if arm["refused"]],
        "notes": manifest["notes"],
        "machine": {**manifest["machine"], "described": machine.describe()} if machine else None,
        "hardware": hardware_line(first.get("environment") or {}),
        "workload": first.get("workload"),
        "model": (first.get("model") or {}).get("name"),
    }


def _point(load: int, run: RunDirectory, machine: Machine | None) -> LoadPoint:
    frames = run.frames()
    ideal = ideal_arms_of(run.manifest, frames, machine) if machine else []
    return LoadPoint(
        load=load,
        run_id=str(run.manifest["run_id"]),
        arms=tuple(run.manifest["arms"]),
        requests=frames.requests,
        ideal={arm.label: to_plain(arm.to_dict()) for arm in ideal},
    )
