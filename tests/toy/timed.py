"""Tests that need a quiet machine, which `make gate` looks for in files that name their marker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

MARKER = "pytest.mark.timed"


def check_their_files_say_so(items: Iterable[pytest.Item]) -> None:
    """UsageError for a timed test in a file without the marker or with a name that no gate looks for: none would run
    it."""
    for path in {item.path for item in items if item.get_closest_marker("timed")}:
        if not path.match("test_*.py") or MARKER not in path.read_text(encoding="utf-8"):
            words = f"has timed tests, and is not a test_*.py that says {MARKER}: make gate would not find them"
            raise pytest.UsageError(f"{path}: {words}")
