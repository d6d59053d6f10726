"""The limits of the machine that a stored run was measured on, and its arms against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench.harness.store.roofline_record import IdealArm, Machine
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.schema import Frames
from specbench.harness.store.sweep_directory import SweepDirectory, is_sweep, sweep_folder

from .of_run import ideal_arms_of

# As `specbench sweep` measured them on one that was idle (crossover.json in benchmarks/runs/h200).
STATED = (
    Machine(
        device="NVIDIA H200",
        dtype="bfloat16",
        read_bytes_per_s=4.485e12,
        matmul_flops_per_s=7.89e14,
        attention_flops_per_s=6.88e14,
        kernel_launch_s=1.038e-6,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """The arms of a run against the limits of their machine. `unknown` says why there are no limits; empty if there
    are."""

    machine: Machine | None = None
    arms: Sequence[IdealArm] = ()
    unknown: str = ""


def roofline_of(run: RunDirectory, frames: Frames | None = None) -> Roofline:
    """Uses the limits measured by the run's own sweep, else the stored limits of its device. `frames`: its raw tables,
    which are read when needed."""
    record = run.record
    if not record.forwards:
        return Roofline(
            unknown="the forward passes of its arms are not recorded (other engines, drafters with experts, older "
            "versions)"
        )
    machine = _of_sweep(run) or _stated(run)
    if machine is None:
        device = record.environment.describe_hardware()
        dtype = record.model.dtype if record.model else None
        return Roofline(unknown=f"the limits of {device} in {dtype} are not known; a sweep measures them")
    return Roofline(machine=machine, arms=ideal_arms_of(record, run.frames() if frames is None else frames, machine))


def _of_sweep(run: RunDirectory) -> Machine | None:
    sweep = sweep_folder(run.path, run.record)
    return SweepDirectory.open(sweep).record.machine if sweep is not None and is_sweep(sweep) else None


def _stated(run: RunDirectory) -> Machine | None:
    """Only for GPUs of one kind: a CPU's name does not say how many of its cores and channels were available."""
    model, hardware = run.record.model, run.record.environment.hardware
    if model is None or hardware is None or model.device == "cpu":
        return None
    names = {gpu.name for gpu in hardware.gpus}
    return next((m for m in STATED if {m.device} == names and m.dtype == model.dtype), None)
