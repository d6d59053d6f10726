"""``specbench show``: report a stored run or sweep again, finished, interrupted or still running."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .output import format_option
from .run import print_view


def show(
    run: Annotated[
        Path, typer.Argument(help="The directory that `specbench run` or `specbench sweep` printed.", metavar="RUN")
    ],
    format: Annotated[str, format_option("table", "wide", "md", "json")] = "table",
    write: Annotated[
        bool, typer.Option("--write", help="Also write the reports and plots into the directory.")
    ] = False,
) -> None:
    """Show the tables of a stored run or sweep; every figure is recomputed from the raw values.

    Examples:

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d --format wide

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d --format json | jq '.arms[].spreads.tps.median'

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d --format md > report.md
    """
    from specbench.harness.store.run_directory import RunDirectory
    from specbench.harness.store.sweep_directory import is_sweep
    from specbench.reports.run.view import view_run

    if is_sweep(run):
        from .sweep_output import show_sweep

        show_sweep(run, format, write=write)
        return
    directory = RunDirectory.open(run)
    view = view_run(directory)
    if format == "md":
        from specbench.reports.run.document import markdown_report

        pictures = [path.as_posix() for path in sorted((directory.path / "plots").glob("*.png"))]
        sys.stdout.write(markdown_report(view, pictures))
    else:
        print_view(view, format)
    if write:
        from specbench.reports.run.report import write_reports

        for path in write_reports(directory):
            typer.echo(f"wrote {path}", err=True)
