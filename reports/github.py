"""GitHub Actions: annotations on stdout and the step summary. specbench itself talks to no API and holds no token."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from specbench.harness.compare.gate_result import FAILED, INCONCLUSIVE, NO_DATA, NOT_COMPARABLE, GateReport, GateResult
from specbench.reports.compare_table import change_cell
from specbench.reports.gate_report import comment

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_MOST_SUMMARY_BYTES = 1 << 20
_LEVELS = {FAILED: "error", NOT_COMPARABLE: "error", NO_DATA: "warning", INCONCLUSIVE: "warning"}


def workflow_commands(report: GateReport) -> str:
    """One workflow command a line for every result that is not in order; empty where all are."""
    lines = [_annotation(report.suite, result) for result in report.results if result.status in _LEVELS]
    return "".join(f"{line}\n" for line in lines)


def write_summary(report: GateReport, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Appends the comment to the step summary where GitHub gives one; None elsewhere."""
    name = environ.get(SUMMARY_VARIABLE)
    if not name:
        return None
    path = Path(name)
    text = comment(report) + "\n"
    size = path.stat().st_size if path.exists() else 0
    if size + len(text.encode()) > _MOST_SUMMARY_BYTES:
        return None
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)
    return path


def escape_data(text: str) -> str:
    """A message of a workflow command: it must not end the line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """A property of a workflow command: nor end the property."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _annotation(suite: str, result: GateResult) -> str:
    title = escape_property(f"specbench {suite}: {result.name}")
    change = change_cell(result.comparison) if result.comparison else ""
    parts = [f"{result.arm}: {result.status}", change, result.reason, f"limit: {result.limit}"]
    return f"::{_LEVELS[result.status]} title={title}::{escape_data('; '.join(part for part in parts if part))}"
