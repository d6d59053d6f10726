"""Records for the crossover page: those stored by sweeps, and those derived from runs that form a curve."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.judge.crossover_record import crossover_record
from specbench.harness.judge.crossover_samples import LoadPoint
from specbench.harness.judge.sweep_figures import goodput_by_load
from specbench.harness.metrics.doubts import is_doubt
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.codec import read_document
from specbench.harness.store.crossover_file import RECORD_FILE, SCHEMA, Crossover
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.safe_paths import refuse_link
from specbench.harness.store.sweep_directory import sweep_folder
from specbench.reports.cells import arm_name, marked_name
from specbench.reports.charts.chart import Styles
from specbench.reports.charts.vega import specification
from specbench.reports.experiments.crossover_chart import crossover_chart, crossover_frame
from specbench.reports.experiments.crossover_table import crossover_tables
from specbench.reports.run.roofline_table import roofline_tables

from .groups import Group
from .runs import WRONG_SHAPE, SiteRun, described


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoredSweep:
    """A sweep with its `crossover.json`, and those of its runs that the site has, newest first. `names`: of its arms,
    by label, with the marks that must accompany their figures."""

    record: Crossover
    runs: tuple[SiteRun, ...]
    names: Mapping[str, str]


def stored_sweeps(runs: Sequence[SiteRun]) -> tuple[list[StoredSweep], tuple[str, ...]]:
    """The sweeps that these runs belong to, as they were derived when measured, and problems in reading them; runs of
    an unreadable sweep are treated like any others."""
    by_folder: dict[Path, list[SiteRun]] = {}
    for run in runs:
        folder = sweep_folder(run.path, run.record)
        if folder is not None and (folder / RECORD_FILE).is_file():
            by_folder.setdefault(folder, []).append(run)
    found, problems = [], []
    for folder, own in by_folder.items():
        try:
            found.append(_read(folder / RECORD_FILE, own))
        except (ValueError, *WRONG_SHAPE) as error:
            file = folder / RECORD_FILE
            why = described(error).removeprefix(f"{file}: ")
            problems.append(
                f"{file}: cannot be read: {why}; rebuild it: specbench show --write {shlex.quote(str(folder))}"
            )
    return [sweep for sweep in found if len(crossover_frame(sweep.record, sweep.names))], tuple(problems)


def loads_of(group: Group) -> list[int]:
    """The concurrencies at which an arm of the group was measured together with its baseline."""
    return sorted({run.concurrency for run in group.runs for arm in _compared(run) if run.concurrency})


def group_record(group: Group) -> Crossover:
    """Derived from the raw tables of the newest run that has an arm at a load; older runs are not read."""
    seen: set[tuple[str, int]] = set()
    points = []
    for run in group.runs:
        new = {(name, run.concurrency) for name in _compared(run) if run.concurrency is not None} - seen
        if new:
            seen |= new
            points.append(_point(run))
    arms = {(run.page, arm_name(arm)): arm for run in group.runs for arm in run.arms}
    return goodput_by_load(crossover_record(points), arms, group.newest.figures.slos)


def _compared(run: SiteRun) -> list[str]:
    return [arm_name(arm) for arm in run.arms if arm.speedup is not None and arm.speedup.tpot_ratio is not None]


def _point(run: SiteRun) -> LoadPoint:
    """Arms have their names on the site: forced acceptance is part of the name."""
    assert run.concurrency is not None
    names = {arm.label: arm_name(arm) for arm in run.arms}
    requests = RunDirectory.open(run.path).frames().requests
    arms = [
        ArmRecord(label=names[arm.label], strategy=arm.strategy, status=arm.status, error=arm.error) for arm in run.arms
    ]
    return LoadPoint(
        load=run.concurrency,
        run_id=run.page,  # two runs with the same id still have a page each
        arms=arms,
        requests=requests.assign(arm=requests["arm"].map(names)),
        doubts={arm_name(arm): tuple(filter(is_doubt, arm.marks)) for arm in run.arms},
    )


def _read(file: Path, runs: Sequence[SiteRun]) -> StoredSweep:
    """Raises if the file is a link, or lacks something that the page shows."""
    refuse_link(file)
    record = read_document(file, Crossover, SCHEMA)
    arms = {(run.run_id, arm.label): arm for run in runs for arm in run.arms}
    record = goodput_by_load(
        record, arms, runs[0].figures.slos
    )  # with this site's limits, not those it was written with
    marks: dict[str, list[str]] = {}
    for run in runs:
        for arm in run.arms:
            marks.setdefault(arm.label, []).extend(arm.marks)
    names = {arm.label: marked_name(arm.label, [*arm.notes, *marks.get(arm.label, ())]) for arm in record.arms}
    crossover_tables(record, names)
    roofline_tables(record, names)
    specification(crossover_chart(record, names, Styles(), "sweep"))
    return StoredSweep(record=record, runs=tuple(runs), names=names)
