"""What `specbench run` does with its options: prepare, measure, report; keep everything on Ctrl-C."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer
from rich.console import Console

from specbench.harness import runner
from specbench.harness.measure.record import RunDirectory
from specbench.harness.run_config import RunConfig
from specbench.reports.json_report import json_text
from specbench.reports.run_report import write_reports
from specbench.reports.table import print_comparison
from specbench.reports.view import view_run

from .progress import RunProgress

EXIT_ALL_FAILED = 1
EXIT_INTERRUPTED = 130


def run_session(
    config: RunConfig | None,
    output_dir: Path,
    label: str,
    resume: Path | None,
    as_json: bool,
    quiet: bool,
    argv: list[str],
) -> None:
    """`config` is None for a resumed run, whose own config counts. Raises ValueError for bad input."""
    with RunProgress(quiet) as progress:
        directory = RunDirectory.open(resume) if resume else None
        if config is None:
            assert directory is not None
            config = RunConfig.from_dict(directory.manifest["config"])
        prepared = runner.prepare(config, progress)
        if directory is None:
            directory = runner.create_directory(prepared, output_dir, label, argv)
        else:
            runner.check_same_workload(directory, prepared)
            directory.resume(argv)
        progress.say(f"writing to {directory.path}")
        interrupted = _measure(prepared, directory, progress)
        progress.say("deriving figures")
    _report(directory, as_json)
    if interrupted:
        again = f"specbench run --resume {shlex.quote(str(directory.path))}"
        typer.echo(f"specbench: interrupted; measured blocks are kept. Go on with: {again}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED)
    if directory.manifest["status"] == "failed":
        raise typer.Exit(EXIT_ALL_FAILED)


def _measure(prepared: runner.PreparedRun, directory: RunDirectory, progress: RunProgress) -> bool:
    """Whether the user interrupted. The directory is closed either way."""
    try:
        runner.measure(prepared, directory, progress)
    except KeyboardInterrupt:
        runner.close(directory, "interrupted")
        return True
    runner.close(directory)
    return False


def _report(directory: RunDirectory, as_json: bool) -> None:
    write_reports(directory)
    view = view_run(directory)
    if as_json:
        typer.echo(json_text(view))
    else:
        print_comparison(view, Console())
        typer.echo(f"run directory: {directory.path}")
