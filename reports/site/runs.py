"""A run as the site reads it, once: record, figures, certificate, traces, scores and verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from specbench.harness.judge.certificate_marks import read_certificate
from specbench.harness.judge.keys import comparison_keys
from specbench.harness.judge.stored import WRONG_SHAPE, Problem, described
from specbench.harness.metrics.goodput import with_goodput
from specbench.harness.metrics.run_results import results_of
from specbench.harness.profiling.record import Profile
from specbench.harness.roofline.machines import roofline_of
from specbench.harness.stats.slos import Slos
from specbench.harness.store.ab_judgement import AB_FILE, AB_SCHEMA, Judgement
from specbench.harness.store.codec import read_document
from specbench.harness.store.environment import GitState
from specbench.harness.store.results import ArmSummary, BlockFigures, Results
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord
from specbench.harness.text import slug
from specbench.reports.document import Cell
from specbench.reports.experiments.certificate import certificate_table, certificate_worst
from specbench.reports.experiments.history_table import short_commit
from specbench.reports.experiments.verdict_table import verdict_table
from specbench.reports.profile.files import read_profiles
from specbench.reports.run.accuracy_view import AccuracyView, view_accuracy
from specbench.reports.run.comparison import comparison_table
from specbench.reports.run.notes import footnotes
from specbench.reports.run.view import RunView, stored_view


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteRun:
    """One run. `page`: its page within the site. `figures`: without the rows of requests and the scores. `ab`: the
    record of an A/B experiment; None for other runs and for experiments that are not judged yet. Arms of an experiment
    have names that describe them. `accuracy` is read at first use."""

    page: str
    path: Path
    figures: RunView
    certificate: Mapping[str, Any] | None
    profiles: Mapping[str, Profile]
    ab: Judgement | None

    @property
    def record(self) -> RunRecord:
        return self.figures.record

    @property
    def arms(self) -> tuple[ArmSummary, ...]:
        return self.figures.arms

    @property
    def blocks(self) -> Mapping[tuple[str, int], BlockFigures]:
        return self.figures.blocks

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def link(self) -> Cell:
        """To its page."""
        return Cell(text=self.run_id, href=self.page)

    @property
    def anchor(self) -> str:
        """The anchor of a section about it, in the address of a page."""
        return Path(self.page).stem.replace("=", "-")

    @property
    def hardware(self) -> str:
        return self.record.environment.describe_hardware()

    @property
    def model(self) -> str:
        record = self.record
        name = record.model.name if record.model else record.config.model if record.config else ""
        return name or "no model"

    @property
    def is_experiment(self) -> bool:
        """Whether it compares sides A and B instead of named arms."""
        return self.record.ab is not None

    @property
    def started_utc(self) -> str:
        return self.record.started_utc

    @property
    def concurrency(self) -> int | None:
        """The limit on requests in flight; None if arrivals are timed or it is not recorded."""
        return (self.record.sampling.max_concurrency or None) if self.record.sampling else None

    @property
    def commit(self) -> str:
        return short_commit((self.record.git or GitState()).revision) or "-"

    @property
    def accuracy(self) -> AccuracyView | None:
        """The scores of an evaluation; None if there is none or it cannot be read (`accuracy_problem`)."""
        return self._scores[0]

    @property
    def accuracy_problem(self) -> str:
        return self._scores[1]

    @cached_property
    def _scores(self) -> tuple[AccuracyView | None, str]:
        if self.record.purpose.evaluation is None:
            return None, ""
        try:
            return view_accuracy(RunDirectory.open(self.path)), ""
        except (ValueError, *WRONG_SHAPE) as error:
            return None, f"the scores cannot be read: {described(error)}"

    def with_scores(self) -> RunView:
        return replace(self.figures, accuracy=self.accuracy)

    def with_roofline(self) -> RunView:
        """The run against the limits of its machine, for which the raw tables are read."""
        directory = RunDirectory.open(self.path)
        roofline = roofline_of(directory)
        names = shown_labels(self.record)
        arms = [replace(arm, label=names.get(arm.label, arm.label)) for arm in roofline.arms]
        return replace(self.figures, roofline=replace(roofline, arms=arms))

    def with_requests(self) -> RunView:
        """The view with the rows of requests, for tables that pair requests again; slow."""
        return replace(self.figures, requests=RunDirectory.open(self.path).frames().requests)


def read_site_runs(paths: Iterable[Path], slos: Slos | None = None) -> tuple[list[SiteRun], list[Problem]]:
    """The runs that can be read, newest first, and those that cannot, with the reason. `slos`: with goodput, for which
    all raw tables are read."""
    runs: list[SiteRun] = []
    problems: list[Problem] = []
    ids: dict[str, Path] = {}
    for path in paths:
        try:
            run = _read(path, slos or {})
        except (ValueError, *WRONG_SHAPE) as error:
            problems.append(Problem.of(path, error))
            continue
        if run.run_id in ids:
            problems.append(Problem.at(path, f"has the run id of {ids[run.run_id]}; both are shown"))
        ids.setdefault(run.run_id, path)
        runs.append(run)
    newest = sorted(runs, key=lambda run: (run.started_utc, run.run_id), reverse=True)
    return _with_pages(newest), problems


def _read(path: Path, slos: Slos) -> SiteRun:
    directory = RunDirectory.open(path)
    record = directory.record
    found = Results() if record.profile is not None else results_of(directory)
    view = stored_view(directory, with_goodput(found, directory.frames().requests, slos) if slos else found)
    names = shown_labels(record)
    figures = replace(
        view,
        record=replace(view.record, results=None),
        arms=tuple(_shown(arm, names) for arm in view.arms),
        blocks={(names.get(arm, arm), n): block for (arm, n), block in view.blocks.items()},
        slos=slos,
    )
    run = SiteRun(
        page="",
        path=directory.path,
        figures=figures,
        certificate=read_certificate(directory.path),
        profiles=_profiles(directory.path),
        ab=_ab_record(directory),
    )
    _check_shown(run)
    return run


def _check_shown(run: SiteRun) -> None:
    """Raises any error here, where the reason is recorded; later it would stop the page of the run."""
    comparison_keys(run.record)
    comparison_table(run.figures)
    footnotes(run.figures)
    if run.certificate is not None:
        certificate_table(run.certificate)
        certificate_worst(run.certificate)
    if run.ab is not None:
        verdict_table(run.ab)


def shown_labels(record: RunRecord) -> dict[str, str]:
    """`A: eagle:k=2` for the arm `A`; empty for runs that are not A/B experiments."""
    names = record.ab.names if record.ab is not None else {}
    return {label: f"{label}: {name}" for label, name in names.items() if name}


def _shown(arm: ArmSummary, names: Mapping[str, str]) -> ArmSummary:
    """The arm under its name on the site, which A/B runs also keep among their marks."""
    label = names.get(arm.label, arm.label)
    return replace(arm, label=label, marks=tuple(mark for mark in arm.marks if f"{arm.label}: {mark}" != label))


def _ab_record(directory: RunDirectory) -> Judgement | None:
    file = directory.path / AB_FILE
    if directory.record.ab is None or not file.is_file():
        return None
    return read_document(file, Judgement, AB_SCHEMA)


def _profiles(path: Path) -> Mapping[str, Profile]:
    has_one = any(path.glob("profile/*/profile.json")) or (path / "profile.json").is_file()
    return read_profiles(path) if has_one else {}


def _with_pages(runs: list[SiteRun]) -> list[SiteRun]:
    """Gives each run a unique, safe file name, for any characters in its id."""
    taken: set[str] = set()
    named = []
    for run in runs:
        stem = slug(run.run_id, longest=100)
        names = (stem, *(f"{stem}-{n}" for n in range(2, len(runs) + 2)))
        name = next(name for name in names if name.lower() not in taken)  # some file systems ignore case
        taken.add(name.lower())
        named.append(replace(run, page=f"runs/{name}.html"))
    return named
