"""The directory of a sweep: `sweep.json`, and a run directory for each load that was started.

    runs/<UTC>-<label>-<8 hex>/
      sweep.json                     the plan and the progress; always rewritten atomically
      runs/<UTC>-<label>-b<load>-<8 hex>/     one ordinary run per load
      crossover.json crossover.md plots/       results derived from the runs

The runs themselves show which loads are measured, so a kill between two writes loses nothing.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar

from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.codec import check_known, checked_schema, from_document, read_object
from specbench.harness.store.directories import RecordDirectory, directory_name, utc
from specbench.harness.store.masking import from_home, masked, plain_text
from specbench.harness.store.migrate import OLD_SWEEP_SCHEMA, migrated_sweep, with_later_options
from specbench.harness.store.purpose import Purpose, SweepPoint
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import STATUSES, SWEEP_SCHEMA, RunRecord, SweepLoad, SweepRecord

FILE, RUNS = "sweep.json", "runs"


class SweepDirectory(RecordDirectory[SweepRecord]):
    """One sweep on disk."""

    FILE: ClassVar[str] = FILE

    @classmethod
    def create(cls, output_dir: Path, label: str, begun: SweepRecord) -> SweepDirectory:
        """Creates `<output_dir>/<UTC>-<label>-<8 hex>/` with its first `sweep.json`; id, command and start of `begun`
        are filled in."""
        now, argv, label = datetime.now(timezone.utc), masked(begun.argv), plain_text(label)
        path = output_dir.expanduser() / directory_name(label, now)
        (path / RUNS).mkdir(parents=True)
        made = cls(path, begun)
        points = tuple(SweepLoad(max_concurrency=load) for load in begun.loads)
        named = replace(begun, sweep_id=path.name, label=label, argv=argv, command=shlex.join(argv))
        made.put(replace(named, started_utc=utc(now), points=points))
        return made

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SweepDirectory:
        """ValueError naming the path and what to do, if there is no readable sweep."""
        file = cls.find(path, "a sweep", "a sweep")
        raw = read_object(file)
        if raw.get("schema") == OLD_SWEEP_SCHEMA:
            raw = migrated_sweep(raw, SWEEP_SCHEMA)
        raw = with_later_options(raw)
        check_known(RunConfig, raw.get("config"), f"{file}: config")
        return cls(file.parent, from_document(SweepRecord, checked_schema(raw, SWEEP_SCHEMA, file), str(file)))

    def put(self, record: SweepRecord) -> None:
        super().put(from_home(record))

    @property
    def loads(self) -> tuple[int, ...]:
        return self._record.loads

    @property
    def runs_path(self) -> Path:
        return self.path / RUNS

    def runs(self) -> dict[int, RunDirectory]:
        """The run of each load that was started, in the order of the loads."""
        found: dict[int, RunDirectory] = {}
        for child in sorted(self.runs_path.iterdir()) if self.runs_path.is_dir() else ():
            if (child / "run.json").is_file():
                run = RunDirectory.open(child)
                point = run.record.purpose.sweep
                if point is None:
                    raise ValueError(f"{child}: not a run of this sweep; move it elsewhere")
                found[point.max_concurrency] = run
        return {load: found[load] for load in self.loads if load in found}

    def purpose_at(self, load: int) -> Purpose:
        point = SweepPoint(sweep_id=self._record.sweep_id, max_concurrency=load, num_points=len(self.loads))
        return replace(self._record.purpose, sweep=point)

    def resume(self, argv: Iterable[str]) -> None:
        """Sets the status back to `running` and records when and by which command. Removes a run that a kill left
        incomplete while it was being created."""
        for child in self.runs_path.iterdir() if self.runs_path.is_dir() else ():
            if child.is_dir() and not any(child.iterdir()):
                child.rmdir()
        super().resume(argv)

    def close(self, status: str | None = None) -> None:
        """Records the status. `status`: by default complete, or failed if no run measured anything."""
        runs = self.runs()
        if status is None:
            status = "complete" if any(run.done_blocks() for run in runs.values()) else "failed"
        assert status in STATUSES, status
        ended_utc = None if status == "running" else utc()
        self.put(replace(self._record, status=status, ended_utc=ended_utc, points=self._points(runs)))

    def _points(self, runs: Mapping[int, RunDirectory]) -> tuple[SweepLoad, ...]:
        begun = {
            load: SweepLoad(max_concurrency=load, run=f"{RUNS}/{run.path.name}", status=run.record.status)
            for load, run in runs.items()
        }
        return tuple(begun.get(load, SweepLoad(max_concurrency=load)) for load in self.loads)


def sweep_folder(path: Path, record: RunRecord) -> Path | None:
    """Where the sweep is that the run at `path` belongs to, unless the run was copied out of it; None if to none."""
    return path.absolute().parent.parent if record.purpose.sweep is not None else None


def is_sweep(path: Path) -> bool:
    """Whether a path names a sweep rather than a run."""
    return path.name == FILE or (path.expanduser() / FILE).is_file()
