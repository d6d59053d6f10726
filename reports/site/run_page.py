"""The page of one run: the exact command first, then its figures, then all that tells where they come from."""

from __future__ import annotations

import shlex

from specbench.reports.accuracy_table import accuracy_tables
from specbench.reports.cells import comparison
from specbench.reports.certificate import certificate_table
from specbench.reports.document import Command
from specbench.reports.factor_table import factor_table
from specbench.reports.profile_report import commands as profile_commands
from specbench.reports.result_table import ResultTable
from specbench.reports.seed_table import seed_table
from specbench.reports.verdict_table import verdict_table
from specbench.reports.view import conventions, footnotes

from . import badges
from .changes import environment_rows
from .page import Cell, Page, Section
from .runs import SiteRun


def run_page(run: SiteRun, profile_href: str | None, with_asked: bool) -> Page:
    """`profile_href`: the page of the run's traces, where it has any. `with_asked`: whether to make the table that the
    run's recipe asks for, and that of its scores, which take as long as reading the run whole."""
    sections = [
        _reproduce(run),
        *_verdict(run),
        *_figures(run, with_asked),
        *_proof(run, with_asked),
        *_traces(run, profile_href),
    ]
    return Page(
        path=run.page,
        title=f"Run {run.run_id}",
        lead=f"Began {run.started_utc}, status {run.manifest['status']}.",
        warnings=_warnings(run),
        sections=(*sections, *_origin(run)),
    )


def _warnings(run: SiteRun) -> tuple[str, ...]:
    status = str(run.manifest["status"])
    unfinished = [f"The run is not complete (status {status}): figures are of what it holds."] * (status != "complete")
    failed = [f"{arm.label}: {arm.status}: {arm.error}" for arm in run.arms if arm.status in ("failed", "partial")]
    return (*unfinished, *failed)


def _reproduce(run: SiteRun) -> Section:
    git = run.manifest.get("git") or {}
    commands = [Command(name="Command", text=str(run.manifest["command"]))]
    if git.get("sha"):
        commands.append(Command(name="Code", text=f"git checkout {git['sha']}"))
    for n, resumed in enumerate(run.manifest.get("resumes") or ()):
        text = f"{shlex.join(map(str, resumed['argv']))}   # {resumed['resumed_utc']}"
        commands.append(Command(name=f"Resumed, {n + 1}", text=text))
    for name, profile in run.profiles.items():
        commands += [Command(name=f"{name}: {c.name}", text=c.text) for c in profile_commands(profile)]
    dirty = (
        ("The checkout had local changes: the commit alone does not give the same code.",) if git.get("dirty") else ()
    )
    return Section(title="Reproduce", sentences=dirty, commands=tuple(commands))


def _verdict(run: SiteRun) -> list[Section]:
    if not run.is_experiment:
        return []
    if run.ab is None:
        command = f"specbench ab --resume {shlex.quote(str(run.path))}"
        return [Section(title="Verdict", sentences=(f"Not judged yet: {command}",))]
    return [Section(title="Verdict", badge=badges.verdict(run.ab), tables=(verdict_table(run.ab),))]


def _figures(run: SiteRun, with_asked: bool) -> list[Section]:
    if not run.arms:
        return []
    view = run.view(with_accuracy=False)
    headers, rows = comparison(view)
    cells = tuple(tuple(row[header] for header in headers) for row in rows)
    table = ResultTable(title="Arms", headers=headers, rows=cells, notes=tuple(conventions(view)))
    asked = asked_tables(run) if with_asked else []
    later = f"The table of the run's recipe: specbench show {shlex.quote(str(run.path))}"
    return [Section(title="Figures", sentences=(later,) * (asks(run) and not asked), tables=(table, *asked))]


def asks(run: SiteRun) -> bool:
    """Whether the run was made for a table of its own: a recipe's, a base's."""
    return bool(run.manifest.get("recipe") or run.manifest.get("factors"))


def asked_tables(run: SiteRun) -> list[ResultTable]:
    """That table; nothing for other runs."""
    if not asks(run):
        return []
    view = run.view_with_requests()
    return [table for table in (seed_table(view), factor_table([view])) if table is not None]


def _proof(run: SiteRun, with_scores: bool) -> list[Section]:
    found = []
    if run.certificate is not None:
        table = certificate_table(run.certificate)
        found.append(Section(title="Losslessness", badge=badges.certificate(run), tables=(table,)))
    if not run.manifest.get("evaluation"):
        return found
    if not with_scores:
        elsewhere = f"The scores of an older run: specbench show {shlex.quote(str(run.path))}"
        return [*found, Section(title="Accuracy", sentences=(elsewhere,))]
    told = (run.accuracy_problem,) if run.accuracy_problem else ()
    return [*found, Section(title="Accuracy", sentences=told, tables=tuple(accuracy_tables(run.view())))]


def _traces(run: SiteRun, href: str | None) -> list[Section]:
    if href is None and not (run.graphs and run.graphs.failures):
        return []
    failures = [f"{arm}: not traced: {error}" for arm, error in run.graphs.failures.items()] if run.graphs else []
    links = (Cell(text="Phases, launches, synchronisations and the median round", href=href),) if href else ()
    return [Section(title="Traces", badge=badges.graph_claim(run), links=links, sentences=tuple(failures))]


def _origin(run: SiteRun) -> list[Section]:
    notes = footnotes(run.view(with_accuracy=False))
    about = tuple((name, value) for name, value in notes if name != "command")  # the page began with it
    tables = [ResultTable(title="What was run", headers=("what", "value"), rows=about)] if run.arms else []
    environment = ResultTable(
        title="Hardware, software, settings", headers=("what", "value"), rows=tuple(environment_rows(run.manifest))
    )
    return [
        Section(title="Environment", tables=(*tables, environment)),
        Section(title="Raw files", tables=(_files(run),)),
    ]


def _files(run: SiteRun) -> ResultTable:
    files = run.manifest.get("files") or {}
    rows = [(name, str(entry.get("sha256", ""))) for name, entry in files.items()]
    notes = () if rows else ("The run was not finished: its files have no hashes yet.",)
    return ResultTable(title=str(run.path), headers=("file", "sha256"), rows=tuple(rows), notes=notes)
