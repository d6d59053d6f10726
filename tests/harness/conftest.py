"""Runs of these tests leave blank pictures: drawing them is half of the time of a tiny run."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.reports.charts import pictures as drawing


class _Blank:
    def savefig(self, path: Path, dpi: int) -> None:
        path.touch()


@pytest.fixture(autouse=True)
def blank_pictures(request, monkeypatch):
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(drawing, "figure", lambda chart: _Blank())


@pytest.fixture
def pictures() -> None:
    """They are drawn."""
