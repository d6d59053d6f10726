"""``specbench gate``: may this change be merged?"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specbench.harness.store.writing import writing

from .output import format_option

if TYPE_CHECKING:
    from specbench.harness.judge.gate_result import GateReport


def gate(
    run: Annotated[Path, typer.Argument(help="The run directory to judge.", metavar="RUN")],
    policy: Annotated[Path, typer.Option(help="TOML file with the gates.", metavar="FILE")] = Path("specbench.toml"),
    against: Annotated[Path | None, typer.Option(help="The run directory of the baseline.", metavar="RUN")] = None,
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Compare even if hardware, workload or sampling differ.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML there.", metavar="FILE")] = None,
    comment: Annotated[
        Path | None, typer.Option(help="Write a pull-request comment there, as Markdown.", metavar="FILE")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Print GitHub annotations and append to $GITHUB_STEP_SUMMARY.")
    ] = False,
    format: Annotated[str, format_option("table", "json")] = "table",
) -> None:
    """Check a stored run against a policy: noise-free figures first (synchronisations, launches, graphs, acceptance,
    certificates, accuracy), then times.

    Times get a verdict only if their interval includes the machine's drift. In an A/B run (specbench ab), B is compared
    with A over the blocks that count; if more than 20% were rejected, the measurement is invalid. Gates are
    independent: if specbench ab says mixed (longer steps, more tokens), the gate of the worse metric fails, so gate
    tpot_ms rather than step_ms if TPOT should decide. Two stored runs (--against) need this machine's noise floor
    (specbench power --aa 10), which widens the interval; without one their times are shown without a verdict (no
    data). Arms of one run (the policy's `baseline`) alternate in one process: the interval covers that process only.

    Exit code: 0 passed; 1 regressed; 2 bad input; 3 inconclusive (policy inconclusive = "fail"); 4 invalid measurement
    or a gate without data; 5 not comparable; 6 wrong outputs or lower accuracy (takes precedence).

    A policy:

      \\[gate.syncs_per_round]
      max = 1

      \\[gate.step_ms]
      min_effect = "1%"
      alpha = 0.05

    Examples:

      specbench gate runs/20260102T040506Z-ab-1b2c3d4e

      specbench gate runs/20260102T040506Z-change-1b2c3d4e --against runs/20260102T030405Z-main-0a1b2c3d

      specbench gate RUN --policy ci/specbench.toml --against BASE --github --junit gate.xml --comment comment.md
    """
    from specbench.harness.judge.gate import run_gates
    from specbench.harness.judge.policy import read_policy
    from specbench.harness.judge.stored import read_run

    rules = read_policy(policy)
    stored = read_run(run)
    report = run_gates(rules, stored, read_run(against) if against is not None else None, allow_mismatch)
    _write(report, junit, comment)
    if format == "json":
        from specbench.reports.experiments.gate_report import gate_json

        sys.stdout.write(gate_json(report))
    else:
        from rich.console import Console

        from specbench.reports.experiments.gate_report import gate_table
        from specbench.reports.terminal import print_result

        print_result(gate_table(report), Console())
    if github:
        from specbench.reports.experiments.github import SUMMARY_VARIABLE, workflow_commands, write_summary

        stream = sys.stderr if format == "json" else sys.stdout
        stream.write(workflow_commands(report))
        try:
            note = write_summary(report)
        except OSError as error:  # the verdict does not depend on it
            where = f"${SUMMARY_VARIABLE} ({os.environ[SUMMARY_VARIABLE]})"
            typer.echo(f"specbench: warning: cannot write to {where}: {error.strerror or error}", err=True)
        else:
            stream.write(note)
    raise typer.Exit(report.exit_code)


def _write(report: GateReport, junit: Path | None, comment: Path | None) -> None:
    """Writes the files before anything is printed, so that they exist even if stdout is closed."""
    from specbench.harness.store.files import write_named

    if junit is not None:
        from specbench.reports.experiments.junit import junit_xml

        with writing("junit", junit):
            junit.parent.mkdir(parents=True, exist_ok=True)
            write_named(junit, junit_xml(report))
    if comment is not None:
        from specbench.reports.experiments.gate_report import comment as comment_text

        with writing("comment", comment):
            comment.parent.mkdir(parents=True, exist_ok=True)
            write_named(comment, comment_text(report))
