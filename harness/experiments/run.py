"""What `specbench run` does with its options: prepare, measure, report; keep what was measured, come what may."""

from __future__ import annotations

import gc
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from specbench.harness.accuracy.eval_config import EvalConfig
from specbench.harness.run import runner
from specbench.harness.run.prepare import PreparedRun, all_blocks, manifest, prepare
from specbench.harness.run_config import RunConfig
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.json_report import json_text
from specbench.reports.run_report import write_reports
from specbench.reports.table import print_comparison, print_joined
from specbench.reports.view import view_run

from . import run_accuracy, run_graphs
from .progress import RunProgress
from .run_lock import run_lock

EXIT_ARM_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def new_runs(
    config: RunConfig,
    batch_sizes: Sequence[int],
    record: Mapping[str, Any],
    output_dir: Path,
    label: str,
    argv: list[str],
    *,
    as_json: bool,
    quiet: bool,
    accuracy: EvalConfig | None = None,
) -> None:
    """One run for each batch size, each with a directory and a report of its own, then the table that joins them.

    `record` is stored in run.json beside the arms: where they come from and what tables to make of them. `accuracy`:
    what the arms are scored on after their blocks. Raises ValueError for bad input, before anything is written; the
    exit code is that of the worst run.
    """
    check_writable(output_dir)
    if accuracy is not None:
        with RunProgress(quiet) as progress:
            record = {**record, "evaluation": run_accuracy.find_items(accuracy, config, progress)}
    many, codes, directories = len(batch_sizes) > 1, [], []
    for size in batch_sizes:
        name = f"{label}-b{size}" if many else label
        directory = new_run(replace(config, max_concurrency=size), record, output_dir, name, argv, quiet=quiet)
        gc.collect()  # the next run needs the memory of this one's engines
        directories.append(directory)
        codes.append(_report(directory, as_json=as_json))
        if codes[-1] == EXIT_INTERRUPTED:
            break
    if many and not as_json:
        print_joined([view_run(directory) for directory in directories], Console())
    if max(codes):
        raise typer.Exit(max(codes))


def new_run(
    config: RunConfig,
    record: Mapping[str, Any],
    output_dir: Path,
    label: str,
    argv: list[str],
    *,
    quiet: bool,
    check: Callable[[PreparedRun], None] | None = None,
) -> RunDirectory:
    """Prepares, measures and closes one run. `check` may refuse what was prepared, before anything is written; with it
    an arm whose engine cannot be built is a row that failed, without it bad input."""
    with RunProgress(quiet) as progress:
        run = prepare(config, progress, keep_refused=check is not None)
        if check is not None:
            check(run)
        try:
            directory = RunDirectory.create(output_dir, label, {**manifest(run, argv), **record})
        except OSError as error:
            raise ValueError(f"output_dir: cannot write to {output_dir}: {error.strerror or error}") from error
        with run_lock(directory.path):
            _measure(run, directory, progress)
    return directory


def resume_run(path: Path, argv: list[str], *, as_json: bool, quiet: bool) -> None:
    """Measures what a stored run has not yet, and reports it."""
    code = _report(continue_run(RunDirectory.open(path), argv, quiet=quiet), as_json=as_json)
    if code:
        raise typer.Exit(code)


def continue_run(directory: RunDirectory, argv: list[str], *, quiet: bool, keep_refused: bool = False) -> RunDirectory:
    """Measures what a stored run has not yet. Raises ValueError for what is no run, or one that cannot go on here."""
    directory.check_has_tables()
    config = RunConfig.from_dict(directory.manifest["config"])
    is_unfinished = run_accuracy.is_missing(directory, config) or run_graphs.is_missing(directory)
    with RunProgress(quiet) as progress, run_lock(directory.path):
        missing = all_blocks(config) - directory.done_blocks()
        if missing or is_unfinished:
            runner.check_same_machine(directory)
            run = prepare(config, progress, directory.done_blocks(), keep_refused=keep_refused)
            runner.check_same_inputs(directory, run)
            directory.resume(argv)
            _measure(run, directory, progress)
        else:
            progress.say(f"nothing to do: all {len(all_blocks(config))} blocks of {directory.path} are measured")
            if directory.manifest["status"] != "complete":  # killed between its last block and its end
                runner.close(directory)
                run_accuracy.close(directory, config)
    return directory


def check_writable(output_dir: Path) -> None:
    """Before a model is loaded for minutes. Creates nothing."""
    whole = output_dir.expanduser().absolute()
    existing = next(path for path in (whole, *whole.parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"output_dir: {existing} is not a directory; give one with --output-dir")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"output_dir: cannot write to {existing}; give a directory you can write with --output-dir")


def _measure(run: PreparedRun, directory: RunDirectory, progress: RunProgress) -> None:
    """Leaves the directory closed, interrupted or complete, unless its disk takes nothing any more."""
    progress.say(f"writing to {directory.path}")
    try:
        try:
            runner.measure(run, directory, progress)
            run_graphs.certify(run, directory, progress)
            run_accuracy.score(run, directory, progress)
            status = None
        except KeyboardInterrupt:
            progress.say("interrupted")
            status = "interrupted"
        progress.say("deriving figures")
        runner.close(directory, status)
        run_accuracy.close(directory, run.config)
    except OSError as error:
        reason = f"cannot write {directory.path}: {error.strerror or error}; measured blocks are kept"
        typer.echo(f"specbench: error: {reason}. Make room, then: {_resume_command(directory)}", err=True)
        raise typer.Exit(EXIT_USAGE) from error


def _report(directory: RunDirectory, as_json: bool) -> int:
    """Reports, table or JSON; the exit code that the run deserves."""
    write_reports(directory)
    view = view_run(directory)
    if as_json:
        sys.stdout.write(json_text(view))
    else:
        print_comparison(view, Console())
        typer.echo(f"run directory: {directory.path}")
    sys.stdout.flush()
    if directory.manifest["status"] == "interrupted":
        typer.echo(
            f"specbench: interrupted; measured blocks are kept. Go on with: {_resume_command(directory)}", err=True
        )
    return exit_code(directory)


def exit_code(directory: RunDirectory) -> int:
    """What a run deserves: interrupted, something of it failed, or all is measured."""
    if directory.manifest["status"] == "interrupted":
        return EXIT_INTERRUPTED
    has_failed = run_accuracy.has_failed(directory) or run_graphs.has_failed(directory)
    return EXIT_ARM_FAILED if directory.failed_blocks() or has_failed else 0


def _resume_command(directory: RunDirectory) -> str:
    return f"specbench run --resume {shlex.quote(str(directory.path))}"
