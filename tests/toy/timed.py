"""Tests that need a quiet machine, which `make gate` looks for in files that name their marker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

MARKER = "pytest.mark.timed"


def check_their_files_say_so(items: Iterable[pytest.Item]) -> None:
    """UsageError for a timed test in a file without the marker, as by a conftest.py: no gate would run it."""
    for path in {item.path for item in items if item.get_closest_marker("timed")}:
        if MARKER not in path.read_text(encoding="utf-8"):
            raise pytest.UsageError(f"{path}: has timed tests and does not say {MARKER}: make gate would not find them")
