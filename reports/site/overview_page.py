"""The first page: all runs, newest first, with their evidence, and the runs that could not be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specbench.harness.judge.stored import Problem
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.reports.cells import NOTHING, row_name
from specbench.reports.document import Cell, Fact, Section, Table, table_of

from . import badges
from .page import Page
from .runs import SiteRun
from .verdict_claim import claim_sides, claim_words

PATH = "index.html"
_NOTE = (
    "best speed-up: TPS against the baseline of the same run; arms with forced acceptance or a failed certificate do "
    "not count. change: that of an A/B experiment, with its 95% interval. A dash: not measured, or no verdict."
)


def overview_page(runs: Sequence[SiteRun], problems: Sequence[Problem], title: str) -> Page:
    """Runs in the order given."""
    machines = list(dict.fromkeys(run.hardware for run in runs))
    notes = [f"All on {machine}." for machine in machines] if len(machines) == 1 else []
    columns: dict[str, Callable[[SiteRun], str | Cell]] = {
        "run": lambda run: run.link,
        "began (UTC), commit": lambda run: f"{run.started_utc.replace('T', ' ')[:16]} {run.commit}",
        "workload": lambda run: _workload(run) + (f", {run.hardware}" if len(machines) > 1 else ""),
        "best speed-up, or change": _headline,
        "verdict": lambda run: badges.verdict(run.ab) if run.ab else badges.NONE,
        "lossless": badges.certificate,
        "graphs": badges.graph_claim,
        "status": badges.status,
    }
    table = table_of(f"{_counted(len(runs), 'run')}, the newest first", columns, runs, (*notes, _NOTE))
    sections = [Section(title="At a glance", facts=_facts(runs)), Section(title="Runs", tables=(table,))]
    warnings = []
    if problems:
        rows = tuple((problem.path, problem.reason) for problem in problems)
        broken = Table(title="Directories and reasons", headers=("directory", "reason"), rows=rows)
        sentence = "Everything else on these pages is complete without them."
        sections.append(Section(title="Could not be read", sentences=(sentence,), tables=(broken,)))
        warnings = [
            f"{_counted(len(problems), 'directory')} listed below could not be read, or cannot be distinguished."
        ]
    lead = "What was measured, and how well it is established."
    return Page(path=PATH, title=title, lead=lead, warnings=tuple(warnings), sections=tuple(sections))


def best_speedup(run: SiteRun) -> tuple[float, str] | None:
    """(speed-up, arm) of the fastest arm that may be a headline."""
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


def _workload(run: SiteRun) -> str:
    workload, load = (
        run.record.workload or WorkloadRecord(),
        f"concurrency {run.concurrency}" if run.concurrency else "",
    )
    return ", ".join(filter(None, (run.model, workload.name or "no workload", load)))


def _headline(run: SiteRun) -> str | Cell:
    """The one figure of a run: for an experiment the change, with the sides; otherwise the best speed-up."""
    if run.ab:
        words = claim_words(run.ab)
        return ": ".join(filter(None, (words, claim_sides(run.ab)))) if words else badges.NONE
    best = best_speedup(run)
    return f"{best[0]:.2f}x {best[1]}" if best else badges.NONE


def _counted(n: int, noun: str) -> str:
    plural = noun.removesuffix("y") + "ies" if noun.endswith("y") else f"{noun}s"
    return f"{n} {noun if n == 1 else plural}"
