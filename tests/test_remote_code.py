"""Code that comes with a model or a data set is never run: every loader is told so, in the tests too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("benchmarks", "harness", "kernels", "reports", "strategies", "tests", "workloads")
LOADERS = {"from_pretrained", "load_dataset", "HFLM"}  # of transformers, datasets and lm-eval


def faults(source: str) -> Iterator[int]:
    """Lines with a call of a loader that does not say `trust_remote_code=False`, or of anything that says otherwise."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [k.value for k in node.keywords if k.arg == "trust_remote_code"]
        said_no = [value for value in given if isinstance(value, ast.Constant) and value.value is False]
        if len(said_no) < len(given) or (name in LOADERS and not said_no):
            yield node.lineno


def test_no_call_may_run_code_of_a_model():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [f"{path.relative_to(ROOT)}:{line}" for path in paths for line in faults(path.read_text(encoding="utf-8"))]
    assert len(paths) > 400 and found == []


@pytest.mark.parametrize(
    "call",
    [
        "AutoTokenizer.from_pretrained(path)",
        "AutoTokenizer.from_pretrained(path, **options)",
        "AutoTokenizer.from_pretrained(path, trust_remote_code=True)",
        "AutoTokenizer.from_pretrained(path, trust_remote_code=trust)",
        "load_dataset('x')",
        "anything(trust_remote_code=True)",
    ],
)
def test_what_counts_as_a_fault(call):
    assert list(faults(call)) == [1]
    assert list(faults("AutoTokenizer.from_pretrained(path, trust_remote_code=False)")) == []
