"""The command `specbench`: one file a subcommand, heavy imports inside the commands."""

from __future__ import annotations

import sys
from importlib import metadata

import typer

from .env import env
from .fetch import fetch
from .list import list_choices
from .run import run
from .show import show

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="specbench",
    help="Benchmarks speculative-decoding strategies: TPS, TPOT and acceptance length on the same prompts, with proof.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(show)
app.command(name="list")(list_choices)
app.command()(fetch)
app.command()(env)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"specbench {metadata.version('specbench-harness')}")
        raise typer.Exit()


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Bad input ends in one line that says what is allowed, and exit code 2."""
    try:
        app(standalone_mode=True)
    except ValueError as error:
        typer.echo(f"specbench: error: {error}", err=True)
        sys.exit(EXIT_USAGE)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        where = f" ({error.filename})" if error.filename else ""
        typer.echo(f"specbench: error: {error.strerror}{where}", err=True)
        sys.exit(EXIT_USAGE)
    except KeyboardInterrupt:
        typer.echo("specbench: interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
