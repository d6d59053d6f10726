"""Reads stored runs for comparison. Runs that cannot be read are reported, never dropped silently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa

from specbench.harness.judge.certificate_marks import failed_marks
from specbench.harness.judge.experiment import Experiment, read_experiment
from specbench.harness.judge.graph_marks import GraphsView, graph_marks, view_graphs
from specbench.harness.metrics.latency import measured
from specbench.harness.metrics.metrics import Block
from specbench.harness.metrics.run_results import block_values, results_of
from specbench.harness.store.results import Figures, Results
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord
from specbench.harness.store.schema import Frames

# Errors from reading a record or a table of another shape, besides the ValueErrors that name the fault.
WRONG_SHAPE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, pa.ArrowException, OSError)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoredRun:
    """One run: its record, raw tables and figures by block. `name` distinguishes the runs of one comparison.

    figures: the compared figures, named as in `BlockFigures`, of every measured block that was not rejected. failed:
    errors of the blocks that failed. rejected: figures of the blocks that were measured and do not count. warnings:
    remarks about its figures. experiment: of an A/B run. marks: of each arm's row, by label.
    """

    name: str
    path: Path
    record: RunRecord
    frames: Frames
    figures: Mapping[Block, Figures]
    failed: Mapping[Block, str]
    warnings: tuple[str, ...] = ()
    rejected: Mapping[Block, Figures] = field(default_factory=dict)
    experiment: Experiment | None = None
    marks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def arms(self) -> tuple[str, ...]:
        """Labels of the arms with a measured block, in the order of the run."""
        measured = {arm for arm, _ in self.figures}
        return tuple(arm.label for arm in self.record.arms if arm.label in measured)

    def rows(self, table: str, label: str) -> pd.DataFrame:
        """The arm's rows of `requests`, `steps` or `counters` in the blocks that have figures."""
        frame = getattr(self.frames, table)
        mine = frame[frame["arm"] == label]
        return mine[mine["repeat"].isin([n for arm, n in self.figures if arm == label])]

    def blocks(self, label: str) -> dict[int, Figures]:
        """Figures of an arm by repeat, in order."""
        return {n: self.figures[arm, n] for arm, n in sorted(self.figures) if arm == label}


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A given path that cannot be used, and why."""

    path: str
    reason: str

    @classmethod
    def at(cls, path: Path | str, what: str) -> Problem:
        return cls(path=str(path), reason=f"{path}: {what}")

    @classmethod
    def of(cls, path: Path, error: Exception) -> Problem:
        """The reason why a run cannot be read; it is reported, and the others continue."""
        if isinstance(error, OSError) and error.strerror:
            return cls.at(path, f"cannot be read: {error.strerror} ({error.filename})")
        what = "" if isinstance(error, ValueError) else f"{path}: damaged, or of another version "
        return cls(path=str(path), reason=what + described(error))


def described(error: Exception) -> str:
    """The error in one line, with its type if the text alone is not informative."""
    text = str(error) if isinstance(error, ValueError) else f"({type(error).__name__}: {error})"
    return " ".join(text.split())


def read_run(path: Path) -> StoredRun:
    """ValueError if `path` is not a run directory of this version, is damaged, or has no measured block."""
    directory = RunDirectory.open(path)
    frames = directory.frames()
    failed = directory.failed_blocks()
    results = results_of(directory)
    blocks = block_values(directory, results)
    experiment = read_experiment(directory, blocks) if directory.record.ab is not None else None
    figures = {b: f for b, f in blocks.items() if experiment is None or b[1] in experiment.kept}
    if not figures:
        what = "no block of it counts, all are rejected" if blocks and experiment else "holds no measured block"
        raise ValueError(f"{directory.path}: {what} (status {directory.status})")
    return StoredRun(
        name=directory.record.run_id,
        path=directory.path,
        record=directory.record,
        frames=replace(frames, requests=measured(frames.requests)),
        figures=figures,
        failed=failed,
        warnings=tuple(_warnings(directory, failed, experiment)),
        rejected={block: found for block, found in blocks.items() if block not in figures},
        experiment=experiment,
        marks=marks_of(directory.path, results, view_graphs(directory.path)),
    )


def marks_of(directory: Path, results: Results, graphs: GraphsView | None) -> dict[str, tuple[str, ...]]:
    """By label: the arm's own marks, and those of its failed certificate and its void graph claim."""
    found = (failed_marks(directory), graph_marks(graphs))
    return {arm.label: (*arm.marks, *(m[arm.label] for m in found if arm.label in m)) for arm in results.arms}


def read_runs(paths: Iterable[Path]) -> tuple[list[StoredRun], list[Problem]]:
    """All runs that can be read, in the given order, each with a unique name; and those that cannot."""
    runs: list[StoredRun] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            run = read_run(path)
        except (ValueError, *WRONG_SHAPE) as error:
            problems.append(Problem.of(path, error))
            continue
        first = next((r for r in runs if r.run_id == run.run_id), None)
        if first is None:
            runs.append(run)
        elif first.path.resolve() == run.path.resolve():
            problems.append(Problem.at(path, "given twice; used once"))
        else:
            problems.append(Problem(path=str(path), reason=two_of_one_id(first, run)))
            runs.append(replace(run, name=f"{run.run_id} ({run.path})"))
    return runs, problems


def two_of_one_id(first: StoredRun, second: StoredRun) -> str:
    """Whether the second run is a copy of the first, or a different run with its id."""
    same = first.record.files == second.record.files and bool(first.record.files)
    what = "a copy with the same raw tables" if same else "but its raw tables differ"
    return f"{second.path}: has the run id of {first.path}, {what}"


def _warnings(directory: RunDirectory, failed: Mapping[Block, str], experiment: Experiment | None) -> Iterator[str]:
    if directory.status == "running":
        yield "the run is still being measured: its figures will change"
    elif directory.status != "complete":
        yield f"the run is not complete (status {directory.status}): figures cover only what was measured"
    if directory.record.is_imported:
        yield "imported: arms were measured one after another; intervals cover requests, not drift between them"
    if experiment is None:
        yield from (f"{arm}, repeat {n + 1}: failed: {error}" for (arm, n), error in failed.items())
        return
    for block in experiment.blocks:
        if block.reasons:
            yield f"block {block.block + 1} is left out: {'; '.join(block.reasons)}"
    if reason := experiment.no_verdict():
        yield f"no verdict: {reason}"
