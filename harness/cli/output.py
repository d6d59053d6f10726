"""Printing of results, shared by all commands: `--format`, JSON, tables, the last hint on stderr, the exit code."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer.models import OptionInfo

from specbench.harness.exit_codes import ExitCode

if TYPE_CHECKING:
    from specbench.harness.experiments.session import Resume
    from specbench.reports.document import Table
    from specbench.reports.run.view import RunView


def format_option(*allowed: str, default: str = "") -> OptionInfo:
    """typer's option for the formats that a command can print. ValueError for any other format."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in allowed:
            raise ValueError(f"format: {value!r} is not known; allowed: {', '.join(allowed)}")
        return value

    return typer.Option(
        "--format", "-f", help=", ".join(allowed) + (f". Default: {default}." if default else "."), callback=check
    )


def goodput_option() -> OptionInfo:
    """`--goodput ttft:500 tpot:50`, for commands that read stored runs."""
    return typer.Option(
        "--goodput",
        metavar="KEY:MS",
        help="Limits in ms, as ttft:500 tpot:50 (ttft, tpot, e2el): also show the requests/s that kept all of them.",
    )


def print_json(record: object) -> None:
    """Prints to stdout, as strict JSON."""
    from specbench.harness.store.files import json_text

    sys.stdout.write(json_text(record))


def print_tables(*tables: Table) -> None:
    from rich.console import Console

    from specbench.reports.terminal import print_result

    for table in tables:
        print_result(table, Console())


def print_view(view: RunView, format: str) -> None:
    """Prints the answer and the comparison of a run, as a table that fits the terminal or with every column; or
    JSON."""
    from rich.console import Console

    from specbench.reports.run.answer import answer
    from specbench.reports.run.brief import brief_table
    from specbench.reports.run.comparison import comparison_table
    from specbench.reports.run.document import requested_tables
    from specbench.reports.run.json_report import json_report
    from specbench.reports.terminal import sentence_lines

    if format == "json":
        print_json(json_report(view))
        return
    console = Console()
    typer.secho(sentence_lines(answer(view), console), bold=True)
    if format == "wide":
        print_tables(comparison_table(view), *requested_tables(view))
        return
    print_tables(brief_table(view, console.width if console.is_terminal else None))
    print_how(view.record.command)
    print_tables(*requested_tables(view))


def print_how(command: str) -> None:
    """Prints the commands that repeat a run, ready to paste."""
    from rich.console import Console

    from specbench.reports.terminal import command_lines

    typer.echo(command_lines(command, Console()))


def print_where(path: Path, what: str = "run") -> None:
    typer.echo(f"all of it: specbench show --format wide {shlex.quote(str(path))}\n{what} directory: {path}")


def say_if_interrupted(status: str, path: Path, resume: Resume, kept: str = "measured blocks") -> None:
    from specbench.harness.experiments.session import INTERRUPTED

    if status == INTERRUPTED:
        say_interrupted(resume(path), kept)


def say_interrupted(command: str, kept: str) -> None:
    """Prints how to resume, as the last line on stderr."""
    sys.stdout.flush()
    typer.echo(f"specbench: interrupted; {kept} are kept. Continue with: {command}", err=True)


def end(code: ExitCode) -> None:
    if code:
        raise typer.Exit(code)
