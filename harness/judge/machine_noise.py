"""The machine's noise between processes, which adds to every difference between two stored runs.

Repeats and prompts of a run share its process and its time, so no interval over them covers the drift between runs. The
drift is taken from the machine's noise floor (`specbench power`); without one, times of two runs get no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.judge.noise import between_runs, fitting_floor, floor_file, read_floors
from specbench.harness.judge.stored import StoredRun
from specbench.harness.stats.paired import Shared
from specbench.harness.store.noise_record import NoiseFloor

ADVICE = "compare in interleaved blocks, or measure the machine's noise first"


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """`shared`: drift that all pairs of one figure share; None if unknown. `note`: its source, or why it is unknown."""

    shared: Shared | None
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFloors:
    """The stored noise floors of the runs' hardware, read once. errors: of files that cannot be read."""

    floors: Mapping[Path, Sequence[NoiseFloor]]
    errors: Mapping[Path, str]

    @staticmethod
    def of(runs: Sequence[StoredRun]) -> NoiseFloors:
        floors, errors = {}, {}
        for environment in (run.record.environment for run in runs):
            path = floor_file(environment)
            if path in floors or path in errors:
                continue
            try:
                floors[path] = read_floors(environment)
            except ValueError as error:  # reported wherever a floor is missing
                errors[path] = str(error)
        return NoiseFloors(floors=floors, errors=errors)

    def between(self, a: StoredRun, b: StoredRun, arm: str, figure: str) -> Noise:
        """The noise of the figure of this name, between an arm of one run and its counterpart in another."""
        first, second = (floor_file(run.record.environment) for run in (a, b))
        if first != second:
            return Noise(shared=None, note="they are of different hardware")
        if first in self.errors:
            return Noise(shared=None, note=self.errors[first])
        floor = fitting_floor(self.floors.get(first, ()), b.record, arm)
        if floor is None:
            return Noise(
                shared=None, note="this machine has no stored noise floor of this model, device and concurrency"
            )
        shared = between_runs(floor.metrics, figure)
        if shared is None:
            return Noise(shared=None, note=f"the noise floor does not cover {figure}")
        cv = math.sqrt(float(shared.variance) / 2)  # type: ignore[arg-type]
        note = (
            f"{figure} of two runs: the interval includes the noise floor of this machine (A/A of {floor.arm}, "
            f"{floor.measured_utc}: {cv:.2%} from process to process, t with at most {shared.freedom} degrees of "
            "freedom); drift slower than that A/A is not covered"
        )
        return Noise(shared=shared, note=note)
