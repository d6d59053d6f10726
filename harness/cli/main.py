"""The command `specbench`: one file a subcommand, heavy imports inside the commands."""

from __future__ import annotations

import errno
import os
import sys
from importlib import metadata
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from specbench.harness.exit_codes import ExitCode, InvalidError, NotComparableError
from specbench.harness.run.interrupts import StoppedAtOnce

from .ab import ab
from .accuracy import accuracy
from .bound import bound
from .certify import certify
from .check_head import check_head
from .compare import compare
from .derived import PASS_THROUGH, Command
from .env import env
from .fetch import fetch
from .gate import gate
from .history import history
from .import_run import import_run
from .list import list_choices
from .pool import pool
from .power import power
from .profile import profile_app
from .report import report
from .run import run
from .show import show
from .sweep import sweep
from .train_head import train_head

_FIRST = """Start with:

specbench run --num-prompts 8    # which strategy is fastest here?

specbench list                   # what is supported here?

specbench show runs/RUN          # print a stored run again
"""
_MEASURE, _JUDGE, _LOOK, _OTHER = "Measure", "Compare and gate", "Inspect", "Machine, data, heads"


_UsageError: Any = typer.BadParameter.__base__  # typer bundles its own click and does not export this class


class _Root(TyperGroup):
    """Reports bad input in one line that says what is allowed, with exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                raise  # a group without a command: print its help
            if error.ctx is not None:
                typer.echo(error.ctx.get_usage(), err=True)
            _end(f"error: {error.format_message()}", ExitCode.BAD_INPUT)
        except NotComparableError as error:
            _end(f"error: {error}", ExitCode.NOT_COMPARABLE)
        except InvalidError as error:
            _end(f"error: {error}", ExitCode.INVALID)
        except ValueError as error:
            _end(f"error: {error}", ExitCode.BAD_INPUT)
        except OSError as error:
            if error.errno in (None, errno.EPIPE):  # not the user's fault, or the reader of stdout has closed it
                raise
            where = f" ({error.filename})" if error.filename else ""
            _end(f"error: {error.strerror}{where}", ExitCode.BAD_INPUT)
        except KeyboardInterrupt:
            _end("interrupted", ExitCode.INTERRUPTED)
        except StoppedAtOnce as stop:
            _end(f"stopped immediately; {stop.advice}", ExitCode.INTERRUPTED)


def _end(text: str, code: ExitCode) -> NoReturn:
    typer.echo(f"specbench: {' '.join(text.split())}", err=True)
    raise typer.Exit(code)


app = typer.Typer(
    name="specbench",
    cls=_Root,
    help="Benchmark speculative decoding: TPS, TPOT and acceptance length of strategies, with the evidence.",
    epilog=_FIRST,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=Command, rich_help_panel=_MEASURE)(run)
app.command(cls=Command, rich_help_panel=_MEASURE)(sweep)
app.command(cls=Command, rich_help_panel=_LOOK)(show)
app.command(cls=Command, rich_help_panel=_JUDGE)(compare)
app.command(cls=Command, rich_help_panel=_JUDGE)(bound)
app.command(cls=Command, rich_help_panel=_JUDGE)(gate)
app.add_typer(history, name="history", rich_help_panel=_JUDGE)
app.command(cls=Command, rich_help_panel=_LOOK)(report)
app.command(cls=Command, rich_help_panel=_LOOK)(pool)
app.command(cls=Command, name="import", rich_help_panel=_LOOK)(import_run)
app.command(cls=Command, rich_help_panel=_MEASURE)(certify)
app.command(cls=Command, context_settings=PASS_THROUGH, rich_help_panel=_MEASURE)(ab)
app.command(cls=Command, context_settings=PASS_THROUGH, rich_help_panel=_MEASURE)(power)
app.add_typer(profile_app, name="profile", rich_help_panel=_MEASURE)
app.command(cls=Command, name="list", rich_help_panel=_OTHER)(list_choices)
app.command(cls=Command, rich_help_panel=_OTHER)(fetch)
app.command(cls=Command, rich_help_panel=_OTHER)(env)
app.command(cls=Command, rich_help_panel=_MEASURE)(accuracy)
app.command(cls=Command, name="train-head", rich_help_panel=_OTHER)(train_head)
app.command(cls=Command, name="check-head", rich_help_panel=_OTHER)(check_head)


def _print_version(requested: bool) -> None:
    if requested:
        try:
            version = metadata.version("specbench-harness")
        except metadata.PackageNotFoundError:
            version = "(not installed: run from a checkout)"
        typer.echo(f"specbench {version}")
        raise typer.Exit()


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    try:
        app(prog_name="specbench")
    finally:
        _drop_unread()


def _drop_unread() -> None:
    """What the reader of stdout (`| head`) did not want is still buffered, and would fail when Python ends."""
    if sys.__stdout__ is None:
        return
    try:
        sys.__stdout__.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())


if __name__ == "__main__":
    main()
