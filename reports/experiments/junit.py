"""A gate's results as JUnit XML, which every CI shows: one test case per arm and gate."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from specbench.harness.judge.gate_result import ERROR, NO_DATA, PASSED, GateReport, GateResult

# Characters that XML 1.0 cannot represent.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: GateReport) -> str:
    """A result that makes the exit code non-zero is a failure, or an error if data is missing; any other result that
    did not pass is skipped. Change, interval and MDE are properties."""
    tags = [_tag(report, result) for result in report.results]
    counts = {"failures": tags.count("failure"), "errors": tags.count("error"), "skipped": tags.count("skipped")}
    attributes = {name: str(count) for name, count in counts.items()}
    suite = ElementTree.Element(
        "testsuite", {"name": _clean(f"specbench.{report.suite}"), "tests": str(len(report.results)), **attributes}
    )
    for result in report.results:
        suite.append(_case(report, result))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _tag(report: GateReport, result: GateResult) -> str:
    """The element of a test case, empty for one that passed."""
    if report.severity(result) == ERROR:
        return "error" if result.status == NO_DATA else "failure"
    return "" if result.status == PASSED else "skipped"


def _case(report: GateReport, result: GateResult) -> ElementTree.Element:
    names = {"classname": f"specbench.{report.suite}.{result.arm}", "name": result.name, "time": "0"}
    case = ElementTree.Element("testcase", {key: _clean(value) for key, value in names.items()})
    properties = ElementTree.SubElement(case, "properties")
    for name, value in _properties(result).items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    if tag := _tag(report, result):
        message = _clean(f"{result.status}: {result.reason or result.limit}")
        element = ElementTree.SubElement(case, tag, {"message": message})
        if tag != "skipped":
            element.set("type", result.kind)
            element.text = _clean(_text(result))
    return case


def _properties(result: GateResult) -> dict[str, str]:
    found = result.comparison
    values: dict[str, object] = {"status": result.status, "value": result.value, "reference": result.reference}
    if found is not None:
        values |= {"change": found.change, "ci_low": found.low, "ci_high": found.high, "mde": found.least_effect}
        values |= {"verdict": found.verdict, "pairs": found.num_pairs, "p_holm": found.p_holm}
    return {name: str(value) for name, value in values.items() if value is not None}


def _text(result: GateResult) -> str:
    lines = [f"limit: {result.limit}", f"this run: {result.value}", f"baseline: {result.reference}"]
    found = result.comparison
    if found is not None and found.change is not None:
        lines.append(f"change: {found.change:+.4f} [{found.low}, {found.high}]")
    return "\n".join([*lines, result.reason])


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
