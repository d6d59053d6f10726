"""The directory of a sweep: `sweep.json`, and a run directory for each load that was begun.

    runs/<UTC>-<label>-<8 hex>/
      sweep.json                     what is swept, how far it is; always rewritten atomically
      runs/<UTC>-<label>-b<load>-<8 hex>/     one ordinary run a load
      crossover.json crossover.md plots/       what was made of them

Which loads are measured is read from the runs themselves: a kill between two writes loses nothing.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench.harness.spec.run_config import RunConfig
from specbench.harness.store.directories import SWEEP_KEY, directory_name, read_manifest, utc
from specbench.harness.store.files import to_plain, write_json
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.safe_paths import refuse_links

if TYPE_CHECKING:
    from specbench.harness.spec.grid import Grid  # torch, which readers of stored sweeps do not need

SCHEMA = "specbench.sweep/1"
FILE, RUNS = "sweep.json", "runs"
STATUSES = ("running", "complete", "interrupted", "failed")
_REQUIRED = ("sweep_id", "status", "argv", "config", "loads", "arms", "record", "points")


class SweepDirectory:
    """One sweep on disk. The process that measures is the only writer."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        """Use `create` or `open`."""
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(
        cls,
        output_dir: Path,
        label: str,
        argv: Sequence[str],
        config: RunConfig,
        loads: Sequence[int],
        grid: Grid,
        record: Mapping[str, Any],
    ) -> SweepDirectory:
        """Makes `<output_dir>/<UTC>-<label>-<8 hex>/` with its first `sweep.json`. `record` goes into every run."""
        now = datetime.now(timezone.utc)
        path = output_dir.expanduser() / directory_name(label, now)
        (path / RUNS).mkdir(parents=True)
        manifest = {
            "schema": SCHEMA,
            "sweep_id": path.name,
            "label": label,
            "status": "running",
            "argv": list(argv),
            "command": shlex.join(argv),
            "started_utc": utc(now),
            "ended_utc": None,
            "resumes": [],
            "config": config.to_dict(),
            "loads": list(loads),
            "arms": [
                {"label": r.label, "family": r.family, "num_drafts": r.num_drafts, "refused": r.refused}
                for r in grid.rows
            ],
            "notes": list(grid.notes),
            "record": dict(record),
            "machine": None,
            "points": [{"max_concurrency": load, "run": None, "status": "pending"} for load in loads],
        }
        made = cls(path, to_plain(manifest))
        made.write()
        return made

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SweepDirectory:
        """ValueError naming the path and what to do where there is no sweep, or none that can be read."""
        directory = Path(path).expanduser()
        directory = directory.parent if directory.name == FILE else directory
        file = directory / FILE
        if not file.is_file():
            raise ValueError(f"{directory}: not a sweep (no {FILE}); give the directory a sweep printed")
        refuse_links(directory)
        manifest = read_manifest(file, SCHEMA)
        missing = [key for key in _REQUIRED if key not in manifest]
        if missing:
            raise ValueError(f"{file}: lacks {', '.join(missing)}: half written, or by another program")
        return cls(directory, manifest)

    @property
    def config(self) -> RunConfig:
        return RunConfig.from_dict(self.manifest["config"])

    @property
    def loads(self) -> list[int]:
        return [int(load) for load in self.manifest["loads"]]

    @property
    def runs_path(self) -> Path:
        return self.path / RUNS

    def runs(self) -> dict[int, RunDirectory]:
        """The run of each load that was begun, in the order of the loads."""
        found: dict[int, RunDirectory] = {}
        for child in sorted(self.runs_path.iterdir()) if self.runs_path.is_dir() else ():
            if (child / "run.json").is_file():
                run = RunDirectory.open(child)
                if SWEEP_KEY not in run.manifest:
                    raise ValueError(f"{child}: a run that is none of this sweep's; move it elsewhere")
                found[int(run.manifest[SWEEP_KEY]["max_concurrency"])] = run
        return {load: found[load] for load in self.loads if load in found}

    def run_record(self, load: int) -> dict[str, Any]:
        """What the run.json of a point holds beside what every run.json does."""
        of = {"sweep_id": self.manifest["sweep_id"], "max_concurrency": load, "num_points": len(self.loads)}
        return {**self.manifest["record"], SWEEP_KEY: of}

    def note(self, **values: Any) -> None:
        self.manifest.update(to_plain(values))
        self.write()

    def resume(self, argv: Iterable[str]) -> None:
        """Back to `running`; remembers when, and by which command. Removes what a kill left of a run being made."""
        for child in self.runs_path.iterdir() if self.runs_path.is_dir() else ():
            if child.is_dir() and not any(child.iterdir()):
                child.rmdir()
        self.manifest["resumes"].append({"resumed_utc": utc(), "argv": [str(word) for word in argv]})
        self.note(status="running", ended_utc=None)

    def close(self, status: str | None = None) -> None:
        """Notes how far it is. `status`: by default complete, or failed where no run measured anything."""
        runs = self.runs()
        if status is None:
            status = "complete" if any(run.done_blocks() for run in runs.values()) else "failed"
        assert status in STATUSES, status
        self.note(status=status, ended_utc=None if status == "running" else utc(), points=self._points(runs))

    def write(self) -> None:
        write_json(self.path / FILE, self.manifest)

    def _points(self, runs: Mapping[int, RunDirectory]) -> list[dict[str, Any]]:
        return [
            {
                "max_concurrency": load,
                "run": f"{RUNS}/{runs[load].path.name}" if load in runs else None,
                "status": runs[load].manifest["status"] if load in runs else "pending",
            }
            for load in self.loads
        ]


def is_sweep(path: Path) -> bool:
    """Whether a path names a sweep rather than a run."""
    return path.name == FILE or (path.expanduser() / FILE).is_file()
