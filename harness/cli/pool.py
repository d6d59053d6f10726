"""``specbench pool``: runs of one repeat each as one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .derived import typed_command
from .output import format_option, print_view, print_where


def pool(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Directories of runs of one repeat that measured the same, two or more.", metavar="RUN"),
    ],
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Parent of the run directory.")] = Path("runs"),
    label: Annotated[str, typer.Option(help="Word in the name of the run directory.")] = "pooled",
    format: Annotated[str, format_option("table", "wide", "json")] = "table",
) -> None:
    """Pool runs of one repeat each into one run: each is a repeat of it.

    Repeats of one process share its memory layout and the state of the machine, so their intervals do not show how
    processes, days and machines differ. Those of pooled runs do. Arms, options, model, prompts, hardware and software
    must be the same; the report names code and command of every repeat.

    Exit code: 0; 2 bad input; 5 the runs are not comparable.

    Examples:

      specbench run --recipe sglang-pr-6995 --num-repeats 1 --label tp2    # today, tonight and tomorrow

      specbench pool runs/*-tp2-*
    """
    from specbench.harness.experiments.pool import pool_runs
    from specbench.reports.run.report import write_reports
    from specbench.reports.run.view import view_run

    directory = pool_runs(runs, output_dir, label, typed_command())
    write_reports(directory)
    print_view(view_run(directory), format)
    if format != "json":
        print_where(directory.path)
