"""Printing of results, shared by all commands: `--format`, JSON, tables, the last hint on stderr, the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer.models import OptionInfo

from specbench.harness.exit_codes import ExitCode

if TYPE_CHECKING:
    from specbench.harness.experiments.session import Resume
    from specbench.reports.document import Table


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


def say_if_interrupted(status: str, path: Path, resume: Resume, kept: str = "measured blocks") -> None:
    """Prints how to resume, as the last line on stderr."""
    from specbench.harness.experiments.session import INTERRUPTED

    sys.stdout.flush()
    if status == INTERRUPTED:
        typer.echo(f"specbench: interrupted; {kept} are kept. Continue with: {resume(path)}", err=True)


def end(code: ExitCode) -> None:
    if code:
        raise typer.Exit(code)
