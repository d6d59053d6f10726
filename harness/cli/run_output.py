"""What `specbench run` prints of a run, and the reports it writes beside it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from specbench.harness.exit_codes import ExitCode
from specbench.harness.experiments.run import RESUME, exit_code
from specbench.reports.run.json_report import json_text
from specbench.reports.run.run_report import write_reports
from specbench.reports.run.view import view_run
from specbench.reports.table import print_comparison, print_joined

from .ending import say_if_interrupted

if TYPE_CHECKING:
    from specbench.harness.store.run_directory import RunDirectory


def print_run(directory: RunDirectory, format: str) -> ExitCode:
    """Reports, table or JSON; the exit code that the run deserves."""
    write_reports(directory)
    view = view_run(directory)
    if format == "json":
        sys.stdout.write(json_text(view))
    else:
        print_comparison(view, Console())
        typer.echo(f"run directory: {directory.path}")
    say_if_interrupted(directory.record.status, directory.path, RESUME)
    return exit_code(directory)


def print_batch_sizes(directories: Sequence[RunDirectory]) -> None:
    print_joined([view_run(directory) for directory in directories], Console())
