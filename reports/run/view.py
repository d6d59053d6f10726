"""A stored run, read and summarised once for all reports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from specbench.harness.metrics.metrics import results_of
from specbench.harness.store.block_records import BlockRecord, read_records
from specbench.harness.store.results import ArmSummary, BlockFigures, Figures, Results
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord
from specbench.reports.experiments.certificate_marks import failed_marks
from specbench.reports.run.accuracy_view import AccuracyView, view_accuracy
from specbench.reports.run.graph_columns import GraphsView, graph_marks, view_graphs


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """The run record, the arms' summaries, the figures of every block, the requests' raw rows, and the scores
    and traces where the arms were evaluated and traced. `seen`: of the machine, block by block."""

    record: RunRecord
    arms: tuple[ArmSummary, ...]
    blocks: Mapping[tuple[str, int], BlockFigures]
    requests: pd.DataFrame
    accuracy: AccuracyView | None = None
    graphs: GraphsView | None = None
    seen: tuple[BlockRecord, ...] = ()

    @property
    def values(self) -> dict[tuple[str, int], Figures]:
        """The figures of each block, by arm and repeat."""
        return {block: figures.values for block, figures in self.blocks.items()}


def stored_view(directory: RunDirectory, results: Results) -> RunView:
    """What the record and its neighbours say, without raw tables and scores. Arms carry the marks of failed
    certificates and of void graph claims."""
    graphs = view_graphs(directory.path)
    marks = (failed_marks(directory.path), graph_marks(graphs))
    arms = [replace(a, marks=(*a.marks, *(m[a.label] for m in marks if a.label in m))) for a in results.arms]
    blocks = results.by_block()
    seen = tuple(record for block, record in read_records(directory.path).items() if block in blocks)
    return RunView(
        record=directory.record, arms=tuple(arms), blocks=blocks, requests=pd.DataFrame(), graphs=graphs, seen=seen
    )


def view_run(run: RunDirectory | str | os.PathLike[str]) -> RunView:
    """Read a run directory, finished or not; ValueError where `RunDirectory.open` raises it."""
    directory = run if isinstance(run, RunDirectory) else RunDirectory.open(run)
    directory.check_has_tables()
    requests = directory.frames().requests
    view = stored_view(directory, results_of(directory))
    return replace(view, requests=requests, accuracy=view_accuracy(directory))
