"""A stored run, read and summarised once for all reports."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from specbench.harness.judge.graph_marks import GraphsView, view_graphs
from specbench.harness.judge.stored import marks_of
from specbench.harness.metrics.goodput import with_goodput
from specbench.harness.metrics.run_results import results_of
from specbench.harness.roofline.machines import Roofline, roofline_of
from specbench.harness.stats.slos import Slos
from specbench.harness.store.block_records import BlockRecord, read_records
from specbench.harness.store.results import ArmSummary, BlockFigures, Figures, Results
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord
from specbench.reports.cells import counted
from specbench.reports.run.accuracy_view import AccuracyView, view_accuracy

_RESUMED_BY = {"run": "run", "sweep": "run", "ab": "ab", "power": "power"}  # by the command that began it


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """The run record, summaries of the arms, figures of every block, raw rows of the requests, and scores and traces if
    the arms were evaluated and traced. `path`: the directory. `seen`: observations of the machine, block by block.
    `slos`: the limits for goodput. `roofline`: of the arms, if the raw tables were read."""

    record: RunRecord
    arms: tuple[ArmSummary, ...]
    blocks: Mapping[tuple[str, int], BlockFigures]
    requests: pd.DataFrame
    accuracy: AccuracyView | None = None
    graphs: GraphsView | None = None
    path: Path = Path()
    seen: tuple[BlockRecord, ...] = ()
    slos: Slos = field(default_factory=dict)
    roofline: Roofline = Roofline()

    @property
    def values(self) -> dict[tuple[str, int], Figures]:
        """The figures of each block, by arm and repeat."""
        return {block: figures.values for block, figures in self.blocks.items()}

    @property
    def status(self) -> str:
        """The record's word; for interrupted repeats also how many there are and how to continue."""
        record, again = self.record, _RESUMED_BY.get("".join(self.record.argv[1:2]))
        if record.status != "interrupted" or record.config is None or again is None:
            return record.status
        planned = record.ab.plan.num_blocks if record.ab else record.config.num_repeats
        done = min((arm.num_repeats for arm in self.arms), default=0)
        command = f"specbench {again} --resume {shlex.quote(str(self.path))}"
        return f"interrupted: {done} of {counted(planned, 'repeat')}; continue with `{command}`"


def stored_view(directory: RunDirectory, results: Results) -> RunView:
    """The view from the record and the files next to it, without raw tables and scores. Arms have marks for failed
    certificates and void graph claims."""
    graphs = view_graphs(directory.path)
    marks = marks_of(directory.path, results, graphs)
    arms = [replace(arm, marks=marks[arm.label]) for arm in results.arms]
    blocks = results.by_block()
    seen = tuple(record for block, record in read_records(directory.path).items() if block in blocks)
    return RunView(
        record=replace(directory.record, status=directory.status),
        path=directory.path,
        arms=tuple(arms),
        blocks=blocks,
        requests=pd.DataFrame(),
        graphs=graphs,
        seen=seen,
    )


def view_run(run: RunDirectory | str | os.PathLike[str], slos: Slos | None = None) -> RunView:
    """Reads a run directory, finished or not; ValueError as `RunDirectory.open` raises it. `slos`: with goodput."""
    directory = run if isinstance(run, RunDirectory) else RunDirectory.open(run)
    directory.check_has_tables()
    frames = directory.frames()
    view = stored_view(directory, with_goodput(results_of(directory), frames.requests, slos or {}))
    return replace(
        view,
        requests=frames.requests,
        accuracy=view_accuracy(directory),
        slos=slos or {},
        roofline=roofline_of(directory, frames),
    )
