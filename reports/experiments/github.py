"""GitHub Actions: annotations on stdout and the step summary. specbench itself calls no API and needs no token."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from specbench.harness.judge.gate_result import ERROR, WARNING, GateReport, GateResult
from specbench.reports.experiments.compare_table import change_cell
from specbench.reports.experiments.gate_report import comment, fitted

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_MAX_SUMMARY_BYTES = 1 << 20
_LEVELS = {ERROR: "error", WARNING: "warning"}


def workflow_commands(report: GateReport) -> str:
    """One workflow command per line for every result that did not pass: an error if its exit code is not 0, else a
    warning. Empty if all passed."""
    lines = [_annotation(report, result) for result in report.with_severity(*_LEVELS)]
    return "".join(f"{line}\n" for line in lines)


def write_summary(report: GateReport, environ: Mapping[str, str] = os.environ) -> str:
    """Appends the comment to GitHub's step summary, if there is one: as much of it as still fits, and a line that says
    so. Returns the workflow command to print if not even that fits, else nothing."""
    name = environ.get(SUMMARY_VARIABLE)
    if not name:
        return ""
    path = Path(name)
    room = _MAX_SUMMARY_BYTES - (path.stat().st_size if path.exists() else 0)
    text = fitted(comment(report) + "\n", room)
    if not text:
        title = escape_property(f"specbench {report.suite}")
        return f"::warning title={title}::the step summary is full: the report is in the log and in the artefact\n"
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)
    return ""


def escape_data(text: str) -> str:
    """Escapes the message of a workflow command, which must not end the line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escapes a property of a workflow command, which must end neither the line nor the property."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _annotation(report: GateReport, result: GateResult) -> str:
    title = escape_property(f"specbench {report.suite}: {result.name}")
    change = change_cell(result.comparison) if result.comparison else ""
    parts = [f"{result.arm}: {result.status}", change, result.reason, f"limit: {result.limit}"]
    level = _LEVELS[report.severity(result)]
    return f"::{level} title={title}::{escape_data('; '.join(part for part in parts if part))}"
