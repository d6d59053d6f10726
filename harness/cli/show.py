"""``specbench show``: report a stored run or sweep again, finished, interrupted or still running."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specbench.harness.store.writing import writing

from .ab import show_experiment
from .certify import print_certificate
from .output import format_option, goodput_option, print_how, print_view

if TYPE_CHECKING:
    from specbench.harness.store.run_directory import RunDirectory
    from specbench.reports.run.view import RunView


def show(
    run: Annotated[
        Path, typer.Argument(help="The directory that `specbench run` or `specbench sweep` printed.", metavar="RUN")
    ],
    format: Annotated[str, format_option("table", "wide", "md", "json")] = "table",
    write: Annotated[
        bool, typer.Option("--write", help="Also write the reports and plots into the directory.")
    ] = False,
    goodput: Annotated[list[str] | None, goodput_option()] = None,
    card: Annotated[
        Path | None,
        typer.Option(help="Also draw the answer as an image of 1200 x 630 pixels, for a pull request or a slide."),
    ] = None,
) -> None:
    """Show the tables of a stored run or sweep; every figure is recomputed from the raw values.

    For an A/B the answer comes first, for a certificate the verdicts.

    Examples:

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d --format wide

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d --format json | jq '.arms[].spreads.tps.median'

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d --format md > report.md

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d --goodput ttft:500 tpot:50

      specbench show runs/20260102T030405Z-sharegpt-0a1b2c3d --card card.png
    """
    from specbench.harness.stats.slos import parse_slos
    from specbench.harness.store.run_directory import RunDirectory
    from specbench.harness.store.sweep_directory import is_sweep
    from specbench.reports.run.view import view_run

    slos = parse_slos(goodput or ())
    if card is not None and card.suffix != ".png":
        raise ValueError(f"card: {str(card)!r} is not allowed; allowed: a file that ends in .png")
    if is_sweep(run):
        if card is not None:
            raise ValueError(f"card: {run} is a sweep; name one of its runs, in {run}/runs")
        from .sweep_output import show_sweep

        show_sweep(run, format, slos, write=write)
        return
    directory = RunDirectory.open(run)
    view = view_run(directory, slos)
    if format == "md":
        from specbench.reports.run.document import markdown_report

        pictures = [path.as_posix() for path in sorted((directory.path / "plots").glob("*.png"))]
        sys.stdout.write(markdown_report(view, pictures))
    elif format == "json" or not _print_other(view, directory, format):
        print_view(view, format)
    if format == "table":
        typer.echo(f"all of it: specbench show --format wide {shlex.quote(str(directory.path))}")
    if write:
        from specbench.reports.run.report import write_reports

        with writing("write", directory.path):
            written = write_reports(directory, slos)
        for path in written:
            typer.echo(f"wrote {path}", err=True)
    if card is not None:
        from specbench.reports.site.card import write_card_of

        with writing("card", card):
            write_card_of(run, card)
        typer.echo(f"wrote {card}", err=True)


def _print_other(view: RunView, directory: RunDirectory, format: str) -> bool:
    """Prints the result of a run that is not a plain comparison of its arms; False for a plain comparison."""
    from specbench.harness.judge.certificate_marks import read_certificate

    if directory.record.ab is not None:
        show_experiment(view, directory, format)
        return True
    certificate = read_certificate(directory.path)
    if certificate is None or any(arm.num_repeats for arm in view.arms):
        return False
    print_certificate(certificate, format)
    print_how(directory.record.command)
    return True
