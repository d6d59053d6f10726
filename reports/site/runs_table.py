"""The table of all runs: the result of each, how well it is established, and the values to filter by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.reports.cells import NOTHING, counted, row_name
from specbench.reports.document import Cell, Table, table_of, without
from specbench.reports.run.answer import ratio_text

from . import badges
from .groups import load_name
from .runs import SiteRun
from .verdict_claim import claim_sides, claim_words

_NOTE = (
    "best speed-up: TPOT against the baseline of the same run, with its 95% interval; arms with forced acceptance, a "
    "failed certificate or a mark such as DISTURBED do not count. change: that of an A/B experiment. A dash: not "
    "measured, or no verdict."
)
_OWN_ENGINE = "specbench"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceTable(Table):
    """A table whose rows can be filtered and sorted on its page. `choices`: the values of each row by filter."""

    choices: tuple[Mapping[str, tuple[str, ...]], ...]


def runs_table(runs: Sequence[SiteRun]) -> ChoiceTable:
    """Runs in the given order. Columns without content are left out."""
    machines = machine_names(runs)
    columns: dict[str, Callable[[SiteRun], str | Cell]] = {
        "run": _run,
        "best speed-up, or change": _headline,
        "verdict": lambda run: badges.verdict(run.ab) if run.ab else badges.NONE,
        "lossless": badges.certificate,
        "graphs": badges.graph_claim,
        "workload": _workload,
        "hardware": lambda run: machines[run.hardware],
        "status": badges.status,
        "commit": lambda run: run.commit,
    }
    table = table_of(f"{counted(len(runs), 'run')}, the newest first", columns, runs)
    for name, values in zip(columns, zip(*table.rows, strict=True), strict=True):
        if {str(value) for value in values} <= {NOTHING, "complete"} or (name == "hardware" and len(machines) == 1):
            table = without(table, name)
    notes = (f"All on {next(iter(machines))}.",) if len(machines) == 1 else ()
    return ChoiceTable(
        title=table.title,
        headers=table.headers,
        rows=table.rows,
        notes=(*notes, _NOTE),
        choices=tuple(_choices(run, machines) for run in runs),
    )


def best_speedup(run: SiteRun) -> tuple[float, str, str] | None:
    """(speed-up of TPOT, arm, the speed-up with its interval as text) of the fastest arm that may be a headline."""
    found = [
        (arm.speedup.tpot_ratio, arm.label, ratio_text(arm))
        for arm in run.arms
        if arm.speedup and arm.speedup.tpot_ratio and row_name(arm) == arm.label
    ]
    return max(found, default=None)


def machine_names(runs: Sequence[SiteRun]) -> dict[str, str]:
    """The short name of each machine: its GPUs, or its CPU if it has none; the full name if short ones are equal."""
    whole = list(dict.fromkeys(run.hardware for run in runs))
    short = [name.partition(", ")[0] for name in whole]
    return {name: brief if short.count(brief) == 1 else name for name, brief in zip(whole, short, strict=True)}


def _choices(run: SiteRun, machines: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    engines = dict.fromkeys(arm.config.engine or _OWN_ENGINE for arm in run.record.arms)
    return {
        "model": (run.model,),
        "hardware": (machines[run.hardware],),
        "workload": (workload_name(run),),
        "engine": tuple(engines),
        "strategy": tuple(dict.fromkeys(arm.strategy for arm in run.arms)),
    }


def workload_name(run: SiteRun) -> str:
    return (run.record.workload or WorkloadRecord()).name or "no workload"


def _run(run: SiteRun) -> Cell:
    """Start time and label; the id, with its hash, is the name of the page."""
    began = run.started_utc.replace("T", " ")[:16]
    return Cell(text=f"{began} {run.record.label or run.run_id}", href=run.page)


def _workload(run: SiteRun) -> str:
    return ", ".join((run.model, workload_name(run), load_name(run)))


def _headline(run: SiteRun) -> Cell:
    """The main figure of a run: for an experiment the change, with the sides; otherwise the best speed-up."""
    if run.ab:
        words = claim_words(run.ab)
        return Cell(text=": ".join(filter(None, (words, claim_sides(run.ab))))) if words else badges.NONE
    best = best_speedup(run)
    return Cell(text=f"{best[2]} {best[1]}", order=best[0]) if best else badges.NONE
