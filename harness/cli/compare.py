"""``specbench compare``: stored runs side by side."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specbench.harness.exit_codes import ExitCode
from specbench.harness.text import parse_effect

from .output import format_option, print_how

if TYPE_CHECKING:
    from specbench.harness.judge.comparison import ComparedRuns

MIN_EFFECT = "1%"


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.", metavar="RUN")],
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|ARM",
            help="What the others are compared with: a run (id or directory; arms are matched by label), or an arm. "
            "Default: the first run; for a single run, its no-spec arm.",
        ),
    ] = None,
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Compare even if hardware, workload or sampling differ.")
    ] = False,
    min_effect: Annotated[str, typer.Option(help="The smallest change that matters.")] = MIN_EFFECT,
    format: Annotated[str, format_option("table", "wide", "md", "json", "csv")] = "table",
) -> None:
    """Compare stored runs: the change of each metric with interval and verdict. Arms are paired by repeat if there are
    six or more, otherwise by prompt; the sides of an A/B run are paired by block.

    Different runs ran at different times: their times get a verdict only if this machine's noise floor is stored
    (specbench power --aa 10), which widens the interval; otherwise the change has no verdict. Arms of one run alternate
    in one process: the interval covers that process, not the next one.

    Exit code: 0; 2 bad input, or nothing left to compare; 5 the runs are not comparable.

    Examples:

      specbench compare runs/20260102T030405Z-main-0a1b2c3d runs/20260102T040506Z-change-1b2c3d4e

      specbench compare runs/2026*-sweep-* --baseline no-spec --format csv > sweep.csv
    """
    from specbench.harness.judge.comparison import compare_runs
    from specbench.harness.judge.stored import read_runs

    effect = parse_effect(min_effect)
    found, problems = read_runs(runs)
    for problem in problems:
        typer.echo(f"specbench: problem: {problem.reason}", err=True)
    if not found:
        raise ValueError("runs: none of those given can be read")
    compared = compare_runs(found, baseline, problems, effect)
    if compared.mismatches and not allow_mismatch:
        for mismatch in compared.mismatches:
            typer.echo(f"specbench: not comparable: {mismatch.run} differs in {mismatch.describe()}", err=True)
        typer.echo("specbench: compare them anyway with --allow-mismatch", err=True)
        raise typer.Exit(ExitCode.NOT_COMPARABLE)
    _print(compared, format)
    if format == "table":
        own = [*map(str, runs), *(["--baseline", baseline] if baseline else [])]
        own += ["--allow-mismatch"] * allow_mismatch + ["--min-effect", min_effect] * (min_effect != MIN_EFFECT)
        typer.echo("all of it:")
        print_how(shlex.join(["specbench", "compare", *own, "--format", "wide"]))
    if len(found) == 1 and len(runs) > 1 and len({p.resolve() for p in runs}) > 1:
        raise typer.Exit(ExitCode.BAD_INPUT)  # something was printed, but not everything that was requested


def _print(compared: ComparedRuns, format: str) -> None:
    from rich.console import Console

    from specbench.reports.experiments.compare_brief import compare_answer, compare_brief
    from specbench.reports.experiments.compare_table import compare_csv, compare_json, compare_table, without_run
    from specbench.reports.markdown import markdown_result
    from specbench.reports.terminal import print_result, sentence_lines

    if format == "json":
        sys.stdout.write(compare_json(compared))
    elif format == "csv":
        sys.stdout.write(compare_csv(compared))
    elif format == "md":
        sys.stdout.write(markdown_result(compare_table(compared)))
    elif format == "wide":
        print_result(without_run(compare_table(compared)), Console())
    else:
        console = Console()
        typer.secho(sentence_lines(compare_answer(compared), console), bold=True)
        print_result(compare_brief(compared, console.width if console.is_terminal else None), console)
