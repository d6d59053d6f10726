"""What `specbench sweep` and `show` print about a sweep, and the reports written with it."""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from rich.console import Console

from specbench.harness.exit_codes import ExitCode
from specbench.harness.experiments.sweep import RESUME, SweepPlan, exit_code
from specbench.harness.judge.draft_table import draft_tables
from specbench.harness.judge.sweep_figures import sweep_record
from specbench.harness.stats.slos import Slos
from specbench.harness.store.codec import write_document
from specbench.harness.store.crossover_file import Crossover
from specbench.harness.store.draft_table import RECORD_FILE
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.sweep_directory import SweepDirectory
from specbench.harness.store.writing import writing
from specbench.reports.experiments.crossover_answer import crossover_answer
from specbench.reports.experiments.crossover_brief import crossover_brief
from specbench.reports.experiments.crossover_table import crossover_tables, display_names, goodput_table, plan_table
from specbench.reports.experiments.sweep_report import markdown_sweep, write_sweep_reports
from specbench.reports.run.report import write_reports
from specbench.reports.terminal import sentence_lines

from .output import print_how, print_json, print_tables, print_where, say_if_interrupted


def print_plan(plan: SweepPlan, format: str) -> None:
    """`--dry-run`: prints every point with its arms, and the arms that cannot run."""
    rows, num_blocks, num_prompts = plan.grid.rows, plan.config.num_repeats, plan.config.num_requests
    if format != "json":
        print_tables(plan_table(plan.loads, rows, num_blocks, num_prompts, plan.grid.notes))
        return
    points = [{"max_concurrency": load, "num_blocks": num_blocks} for load in plan.loads]
    arms = [{"label": r.label, "num_drafts": r.num_drafts, "refused": r.refused} for r in rows]
    print_json({"points": points, "arms": arms, "num_prompts": num_prompts, "notes": plan.grid.notes})


def report_point(run: RunDirectory) -> None:
    """Writes the reports of a point while others are still to be measured."""
    write_reports(run)


def print_sweep(sweep: SweepDirectory, format: str, slos: Slos) -> ExitCode:
    """Prints reports, tables or JSON; returns the exit code of the sweep."""
    record = sweep_record(sweep, slos)
    write_sweep_reports(sweep.path, record)
    _write_draft_table(sweep)
    _print(record, format, sweep.path)
    say_if_interrupted(sweep.record.status, sweep.path, RESUME)
    return exit_code(sweep)


def show_sweep(path: Path, format: str, slos: Slos, *, write: bool) -> None:
    """Prints the results of a sweep so far, derived anew from its runs."""
    sweep = SweepDirectory.open(path)
    record = sweep_record(sweep, slos)
    if format == "md":
        pictures = sorted((sweep.path / "plots").glob("*.png"))
        sys.stdout.write(markdown_sweep(record, [picture.as_posix() for picture in pictures]))
    else:
        _print(record, format, sweep.path)
    say_if_interrupted(sweep.status, sweep.path, RESUME)
    if not write:
        return
    with writing("write", sweep.path):
        written = [*write_sweep_reports(sweep.path, record), *_write_draft_table(sweep)]
    for file in written:
        typer.echo(f"wrote {file}", err=True)


def _write_draft_table(sweep: SweepDirectory) -> list[Path]:
    """Writes draft_table.json if a chain was measured."""
    tables = draft_tables(sweep)
    if not tables.tables:
        return []
    write_document(sweep.path / RECORD_FILE, tables)
    return [sweep.path / RECORD_FILE]


def _print(record: Crossover, format: str, path: Path) -> None:
    """Prints the answer, a table that fits, and how to repeat the sweep; with `wide` every table instead; or JSON."""
    if format == "json":
        print_json(record)
        return
    console, names = Console(), display_names(record)
    typer.secho(sentence_lines(crossover_answer(record, names), console), bold=True)
    if format == "wide":
        print_tables(*crossover_tables(record, names))
        return
    print_tables(crossover_brief(record, names, console.width if console.is_terminal else None))
    if record.slos:
        print_tables(goodput_table(record, names))
    print_how(record.command)
    print_where(path, "sweep")
