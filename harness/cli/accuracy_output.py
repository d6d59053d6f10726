"""What `specbench accuracy` prints of an evaluation, and the reports it writes."""

from __future__ import annotations

import typer
from rich.console import Console

from specbench.harness.exit_codes import ExitCode
from specbench.harness.experiments.accuracy import RESUME, exit_code
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.run.accuracy_table import accuracy_tables
from specbench.reports.run.run_report import write_reports
from specbench.reports.run.view import view_run
from specbench.reports.table import print_result

from .ending import say_if_interrupted


def print_evaluation(directory: RunDirectory) -> ExitCode:
    """Reports and tables; the exit code that the evaluation deserves."""
    write_reports(directory)
    for table in accuracy_tables(view_run(directory)):
        print_result(table, Console())
    typer.echo(f"run directory: {directory.path}")
    say_if_interrupted(directory.record.status, directory.path, RESUME, kept="outputs")
    return exit_code(directory)
