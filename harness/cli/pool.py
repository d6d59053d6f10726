"""``specbench pool``: the repeats of several runs as one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .derived import typed_command
from .output import format_option
from .run import print_view, print_where


def pool(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Directories of runs that measured the same, two or more.", metavar="RUNS..."),
    ],
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Parent of the run directory.")] = Path("runs"),
    label: Annotated[str, typer.Option(help="Word in the name of the run directory.")] = "pooled",
    format: Annotated[str, format_option("table", "wide", "json")] = "table",
) -> None:
    """Pool runs of the same command into one run: their repeats follow each other.

    Repeats of one process share its memory layout, its clocks and the state of the machine. Pooled runs of several
    processes or machines do not, and their intervals show it. Arms, options, hardware, prompts and sampling must be
    the same; the report names code and command of every repeat.

    Exit code: 0; 2 bad input; 5 the runs are not comparable.

    Examples:

      specbench run --recipe sglang-pr-6995 --num-repeats 1     # twice today, once tomorrow

      specbench pool runs/20260102T030405Z-run-0a1b2c3d runs/20260102T040506Z-run-1b2c3d4e runs/20260103T*
    """
    from specbench.harness.experiments.pool import pool_runs
    from specbench.reports.run.report import write_reports
    from specbench.reports.run.view import view_run

    directory = pool_runs(runs, output_dir, label, typed_command())
    write_reports(directory)
    print_view(view_run(directory), format)
    if format != "json":
        print_where(directory.path)
