"""A gate's report: a table, JSON, and a pull-request comment modelled on rustc-perf's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specbench.harness.exit_codes import ExitCode
from specbench.harness.judge.gate_result import (
    ERROR,
    FAILED,
    INCONCLUSIVE,
    NO_DATA,
    NOT_COMPARABLE,
    PASSED,
    SKIPPED,
    GateReport,
    GateResult,
)
from specbench.harness.store.files import json_text, to_object
from specbench.reports.cells import NOTHING, counted, number, size_text
from specbench.reports.document import Table
from specbench.reports.experiments.compare_table import change_cell
from specbench.reports.markdown import escape_markdown, fenced, markdown_table

GATE_SCHEMA = "specbench.gate/1"
HEADERS = ("gate", "arm", "baseline", "this run", "change [95% CI]", "MDE", "verdict", "pairs", "limit", "why")
MAX_CHARACTERS = 65_536  # limit of a comment on GitHub
_SHORT = HEADERS[:8]
_ORDER = (FAILED, NOT_COMPARABLE, NO_DATA, INCONCLUSIVE, PASSED, SKIPPED)
_WORDS = {
    ExitCode.PASSED: "passed",
    ExitCode.FAILED: "regressed",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.INVALID: "invalid measurement",
    ExitCode.NOT_COMPARABLE: "not comparable",
    ExitCode.WRONG: "wrong outputs",
}
_HOW_PAIRED = (
    "Baseline and this run are geometric means over the pairs of a change; specbench show prints medians over repeats, "
    "which may differ a little."
)
_CUT = "\n\n(cut: too long for GitHub; the whole report is in the artefact)\n"


def gate_table(report: GateReport) -> Table:
    """Every result, failed ones first."""
    against = f" against {report.baseline_id}" if report.baseline_id else ""
    return Table(
        title=f"{report.suite}: {headline(report)}: {report.run_id}{against}",
        headers=HEADERS,
        rows=tuple(_row(result) for result in _sorted(report.results)),
        notes=(*_notes(report), sentence(report)),
        spare=("pairs", "MDE", "limit", "baseline"),
    )


def headline(report: GateReport) -> str:
    return _WORDS[report.exit_code]


def sentence(report: GateReport) -> str:
    """The verdict in one line, with what to do."""
    if report.exit_code == ExitCode.PASSED:
        open_ = report.with_status(INCONCLUSIVE, NO_DATA)
        rest = f"; {counted(len(open_), 'gate')} without a verdict" if open_ else ""
        return f"{counted(len(report.with_status(PASSED)), 'gate')} passed{rest}: no action needed."
    errors = report.with_severity(ERROR)
    what = f"{_WORDS[report.exit_code]}: {', '.join(dict.fromkeys(r.gate for r in errors))}"
    return f"{what} ({len(errors)} of {counted(len(report.results), 'check')}): please read."


def gate_json(report: GateReport) -> str:
    """Everything, as indented strict JSON."""
    return json_text({"schema": GATE_SCHEMA, "verdict": headline(report), **to_object(report)})


def comment(report: GateReport) -> str:
    """GitHub Markdown, at most MAX_CHARACTERS, with the hidden marker by which a workflow finds it again."""
    results = _sorted(report.results)
    shown = [r for r in results if r.status not in (PASSED, SKIPPED) or r.comparison is not None]
    rest = [r for r in results if r not in shown]
    passed = report.exit_code == ExitCode.PASSED
    head = [
        marker(report.suite),
        f"## {'✅' if passed else '❌'} specbench {escape_markdown(report.suite)}: {headline(report)}",
        "",
        escape_markdown(sentence(report)),
        "",
        escape_markdown(f"Run {report.run_id}" + (f" against {report.baseline_id}." if report.baseline_id else ".")),
        "",
    ]
    tail = ["", *_reproduce(report), ""]
    if shown:
        head += [_table(shown), ""]
    notes = [f"* {escape_markdown(note)}" for note in _notes(report)]
    details = [*_why(shown), *(["", _table(rest)] if rest else []), *(["", *notes] if notes else [])]
    body = _details(f"{counted(len(rest), 'other check')}, reasons and notes", details) if any(details) else []
    texts = ["\n".join([*head, *body, *tail]), "\n".join([*head, *tail]) + _CUT, "\n".join(head) + _CUT]
    return next((text for text in texts if len(text.encode()) <= MAX_CHARACTERS), fitted(texts[-1], MAX_CHARACTERS))


def marker(suite: str) -> str:
    """`<!-- specbench:SUITE -->`; characters that could end the HTML comment early are replaced."""
    return f"<!-- specbench:{re.sub('[^A-Za-z0-9._-]+', '-', suite)} -->"


def _row(result: GateResult) -> tuple[str, ...]:
    found = result.comparison
    unit = f" {result.unit}" if result.unit else ""
    verdict = result.status
    if found is not None and result.status in (PASSED, FAILED):
        verdict = f"{result.status}: {found.verdict}"
    return (
        result.name,
        result.arm,
        _value(result.reference, unit),
        _value(result.value, unit),
        change_cell(found),
        size_text(found.least_effect) if found else NOTHING,
        verdict,
        f"{found.num_pairs} {found.metric.pairs}" if found else NOTHING,
        result.limit or NOTHING,
        result.reason or NOTHING,
    )


def _value(value: float | None, unit: str) -> str:
    return NOTHING if value is None else number(value) + unit


def _sorted(results: Sequence[GateResult]) -> list[GateResult]:
    return sorted(results, key=lambda r: _ORDER.index(r.status))


def _table(results: Sequence[GateResult]) -> str:
    return markdown_table(_SHORT, [_row(result)[: len(_SHORT)] for result in results])


def _why(results: Sequence[GateResult]) -> list[str]:
    explained = [r for r in results if r.reason]
    return [f"* {escape_markdown(f'{r.name}, {r.arm}: {r.reason} (limit: {r.limit})')}" for r in explained]


def _notes(report: GateReport) -> list[str]:
    notes = [*(f"differs in {m.describe()}" for m in report.mismatches), *report.notes]
    return [*notes, _HOW_PAIRED] if any(r.comparison and r.value is not None for r in report.results) else notes


def _reproduce(report: GateReport) -> list[str]:
    text = "\n\n".join(f"# {name}\n{command}" for name, command in report.commands.items())
    return _details("Reproduce", [fenced(text, "sh")])


def _details(summary: str, lines: Sequence[str]) -> list[str]:
    return ["<details>", f"<summary>{escape_markdown(summary)}</summary>", "", *lines, "", "</details>", ""]


def fitted(text: str, max_bytes: int) -> str:
    """`text`, cut after a whole line with a note if it is too long; empty if not even one line fits."""
    if len(text.encode()) <= max_bytes:
        return text
    end = text.encode().rfind(b"\n", 0, max(0, max_bytes - len(_CUT.encode())))
    return text.encode()[:end].decode() + _CUT if end > 0 else ""
