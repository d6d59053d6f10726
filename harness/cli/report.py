"""``specbench report``: runs as a static site."""

from __future__ import annotations

from typing import Annotated

import typer

from specbench.harness.spec.fields import given_path


def report(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run directories, or folders that hold some, such as a history.", metavar="RUNS..."),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="PATH", help="Directory of the site.")] = "site",
    format: Annotated[
        str, typer.Option(help="html, png, pdf, separated by commas: png and pdf add the charts as pictures.")
    ] = "html",
    title: Annotated[str, typer.Option(help="Title of the site.")] = "specbench",
) -> None:
    """Build a static site from stored runs. It opens from disk and needs neither a server nor a network.

    Runs that cannot be read are listed on the first page with the reason.

    Exit code: 0; 2 bad input, or no run can be read.

    Examples:

      specbench report runs/ -o site/

      specbench report history/ -o public/ --format html,png --title "nightly, H200"
    """
    from specbench.reports.site.build import FORMATS, build_site

    words = [word.strip() for word in format.split(",")]
    unknown = [word for word in words if word not in FORMATS]
    if unknown:
        raise ValueError(f"format: {unknown[0]!r} is not allowed; allowed: {', '.join(FORMATS)}, separated by commas")
    built = build_site([given_path("runs", run) for run in runs], given_path("output", output), words, title)
    for problem in built.problems:
        typer.echo(f"specbench: problem: {problem.reason}", err=True)
    typer.echo(f"{built.num_runs} runs", err=True)
    typer.echo(str(built.index))
