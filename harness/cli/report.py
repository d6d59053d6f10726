"""``specbench report``: runs as a static site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import goodput_option


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories, or folders that hold some, such as a history.", metavar="RUN")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the site.")] = Path("site"),
    format: Annotated[
        str, typer.Option(help="html, png, pdf, separated by commas: png and pdf add the charts as images.")
    ] = "html",
    title: Annotated[str, typer.Option(help="Title of the site.")] = "specbench",
    goodput: Annotated[list[str] | None, goodput_option()] = None,
) -> None:
    """Build a static site from stored runs. It opens from disk and needs neither a server nor a network.

    Runs that cannot be read are listed on the first page with the reason. Selections, sorting and open sections of a
    page are part of its URL, so that a link shows the same view.

    Exit code: 0; 2 bad input, or no run can be read.

    Examples:

      specbench report runs/ -o site/

      specbench report history/ -o public/ --format html,png --title "nightly, H200"
    """
    from specbench.harness.stats.slos import parse_slos
    from specbench.reports.site.build import FORMATS, build_site

    words = [word.strip() for word in format.split(",")]
    unknown = [word for word in words if word not in FORMATS]
    if unknown:
        raise ValueError(f"format: {unknown[0]!r} is not allowed; allowed: {', '.join(FORMATS)}, separated by commas")
    built = build_site(runs, output, words, title, parse_slos(goodput or ()))
    for problem in built.problems:
        typer.echo(f"specbench: problem: {problem.reason}", err=True)
    typer.echo(f"{built.num_runs} runs", err=True)
    typer.echo(str(built.index))
