"""How a command that measured ends: its hint on stderr and its exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from specbench.harness.exit_codes import ExitCode
from specbench.harness.experiments.session import INTERRUPTED, Resume


def end(code: ExitCode) -> None:
    if code:
        raise typer.Exit(code)


def say_if_interrupted(status: str, path: Path, resume: Resume, kept: str = "measured blocks") -> None:
    """How to go on, as the last line on stderr."""
    sys.stdout.flush()
    if status == INTERRUPTED:
        typer.echo(f"specbench: interrupted; {kept} are kept. Go on with: {resume(path)}", err=True)
