"""What `specbench ab` and `power` print of an experiment, and the files they write of it."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console

from specbench.harness.exit_codes import ExitCode
from specbench.harness.experiments.ab import RESUME
from specbench.harness.experiments.power import learn_floor
from specbench.harness.experiments.session import INTERRUPTED
from specbench.harness.judge.ab_verdict import exit_code, judge
from specbench.harness.store.ab_judgement import AB_FILE, Judgement
from specbench.harness.store.codec import write_document
from specbench.harness.store.files import to_object, write_atomically
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.experiments.noise_table import noise_table
from specbench.reports.experiments.verdict_table import verdict_table
from specbench.reports.run.result_table import ResultTable
from specbench.reports.run.run_report import write_reports
from specbench.reports.table import markdown_result, print_result

from .ending import say_if_interrupted

TABLE_FILE = "ab.md"


def print_verdict(directory: RunDirectory, format: str, *, strict: bool) -> ExitCode:
    """Judges, writes the reports and prints the verdict; the exit code that it deserves."""
    record = _judge_and_write(directory)
    _print(to_object(record), verdict_table(record), format)
    if format == "table":
        typer.echo(f"run directory: {directory.path}")
    say_if_interrupted(directory.record.status, directory.path, RESUME)
    return ExitCode.INTERRUPTED if directory.record.status == INTERRUPTED else exit_code(record, strict=strict)


def print_learnt_floor(directory: RunDirectory, format: str) -> ExitCode:
    """The noise floor of an A/A, stored for this hardware where the A/A is valid; 4 where it is not."""
    record = _judge_and_write(directory)
    say_if_interrupted(directory.record.status, directory.path, RESUME)
    if directory.record.status == INTERRUPTED:
        return ExitCode.INTERRUPTED
    floor, stored = learn_floor(record, directory)
    print_floor(floor, format)
    if stored is None:
        typer.echo("specbench: the A/A is invalid and is not stored; see ab.md in the run directory", err=True)
    else:
        typer.echo(f"specbench: stored in {stored}", err=True)
    typer.echo(f"specbench: run directory: {directory.path}", err=True)
    return ExitCode.INVALID if stored is None else ExitCode.PASSED


def print_floor(floor: dict[str, Any], format: str) -> None:
    _print(floor, noise_table(floor), format)


def _judge_and_write(directory: RunDirectory) -> Judgement:
    """The record of a stored experiment; ab.json, ab.md and the reports that every run has are written."""
    record = judge(directory)
    write_document(directory.path / AB_FILE, record)
    text = markdown_result(verdict_table(record))
    write_atomically(directory.path / TABLE_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    write_reports(directory)
    return record


def _print(record: dict[str, Any], table: ResultTable, format: str) -> None:
    if format == "json":
        typer.echo(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        print_result(table, Console())
