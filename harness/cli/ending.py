"""How a command that measured ends: its hint on stderr and its exit code."""

from __future__ import annotations

import sys

import typer

from specbench.harness.exit_codes import ExitCode
from specbench.harness.experiments.session import INTERRUPTED, Directory, Resume


def end(code: ExitCode) -> None:
    if code:
        raise typer.Exit(code)


def say_if_interrupted(directory: Directory, resume: Resume, kept: str = "measured blocks") -> None:
    """How to go on, as the last line on stderr."""
    sys.stdout.flush()
    if directory.manifest["status"] == INTERRUPTED:
        command = resume(directory.path)
        typer.echo(f"specbench: interrupted; {kept} are kept. Go on with: {command}", err=True)
