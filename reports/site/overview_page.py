"""The first page: every run, the newest first, what was proved of it, and what could not be read."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.judge.stored import Problem
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.reports.cells import NOTHING, row_name
from specbench.reports.document import Fact, Table

from . import badges
from .page import Cell, LinkTable, Page, Section
from .runs import SiteRun
from .verdict_claim import claim_sides, claim_words

PATH = "index.html"
_HEADERS = (
    "run",
    "began (UTC), commit",
    "workload",
    "best speed-up, or change",
    "verdict",
    "lossless",
    "graphs",
    "status",
)


def overview_page(runs: Sequence[SiteRun], problems: Sequence[Problem], title: str) -> Page:
    """Runs in the order given."""
    machines = list(dict.fromkeys(_hardware(run) for run in runs))
    are_told = len(machines) > 1
    table = LinkTable(
        title=f"{len(runs)} run{'s' * (len(runs) != 1)}, the newest first",
        headers=_HEADERS,
        rows=tuple(_row(run, _hardware(run) * are_told) for run in runs),
        notes=(
            *([] if are_told else [f"All on {machine}." for machine in machines]),
            "best speed-up: of TPS against no-spec in the same run; arms with forced acceptance or a failed "
            "certificate are not considered. change: of an A/B experiment, with its 95% interval. A dash: nothing was "
            "asked, or there is no verdict.",
        ),
    )
    broken = Section(
        title="Could not be read",
        sentences=("Everything else on these pages is complete without them.",),
        tables=(_problems(problems),),
    )
    return Page(
        path=PATH,
        title=title,
        lead="What was measured, and what was proved of it.",
        warnings=(f"{_counted(len(problems))} listed below could not be read or told apart.",) if problems else (),
        sections=(Section(title="At a glance", facts=_facts(runs)), Section(title="Runs", link_tables=(table,)))
        + ((broken,) if problems else ()),
    )


def best_speedup(run: SiteRun) -> tuple[float, str] | None:
    """(factor, arm) of the fastest arm that may be a headline."""
    found = [
        (arm.speedup.tps_ratio, arm.label)
        for arm in run.arms
        if arm.speedup and arm.speedup.tps_ratio and row_name(arm) == arm.label
    ]
    return max(found, default=None)


def _facts(runs: Sequence[SiteRun]) -> tuple[Fact, ...]:
    tones = [badges.certificate(run).tone for run in runs]
    experiments = [run.ab.verdict for run in runs if run.ab]
    counts = ", ".join(f"{experiments.count(word)} {word}" for word in dict.fromkeys(experiments))
    num_certified = sum(run.certificate is not None for run in runs)
    return (
        Fact(name="runs", value=str(len(runs)), note=f"newest: {runs[0].started_utc[:10]}" if runs else ""),
        Fact(name="commits", value=str(len({run.commit for run in runs} - {NOTHING}))),
        Fact(name="A/B experiments", value=str(len(experiments)), note=counts),
        Fact(
            name="losslessness certificates",
            value=f"{tones.count(badges.GOOD)} of {num_certified}" if num_certified else "none",
            note="passed" if num_certified else "no run was certified",
        ),
        Fact(name="runs with traces", value=str(sum(bool(run.profiles) for run in runs))),
    )


def _row(run: SiteRun, hardware: str) -> tuple[Cell, ...]:
    workload = run.record.workload or WorkloadRecord()
    load = f"{run.concurrency} at once" if run.concurrency else ""
    kind = (_model(run), workload.name or "no workload", load, hardware)
    return (
        Cell(text=run.run_id, href=run.page),
        Cell(text=f"{run.started_utc.replace('T', ' ')[:16]} {run.commit}"),
        Cell(text=", ".join(filter(None, kind))),
        _headline(run),
        badges.verdict(run.ab) if run.ab else badges.NONE,
        badges.certificate(run),
        badges.graph_claim(run),
        badges.status(run),
    )


def _headline(run: SiteRun) -> Cell:
    """The one figure of a run: of an experiment the change, with the sides; else the best speed-up."""
    if run.ab:
        words = claim_words(run.ab)
        return Cell(text=": ".join(filter(None, (words, claim_sides(run.ab))))) if words else badges.NONE
    best = best_speedup(run)
    return Cell(text=f"{best[0]:.2f}x {best[1]}") if best else badges.NONE


def _hardware(run: SiteRun) -> str:
    return run.record.environment.describe_hardware()


def _model(run: SiteRun) -> str:
    record = run.record
    if record.model is not None:
        return record.model.name or "no model"
    return record.config.model if record.config else "no model"


def _problems(problems: Sequence[Problem]) -> Table:
    rows = tuple((problem.path, problem.reason) for problem in problems)
    return Table(title="Directories and reasons", headers=("directory", "reason"), rows=rows)


def _counted(n: int) -> str:
    return "1 directory" if n == 1 else f"{n} directories"
