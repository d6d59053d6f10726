"""Runs of these tests leave blank pictures: drawing them is half of the time of a tiny run. Caches of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.reports.charts import pictures as drawing


class _Blank:
    def savefig(self, path: Path, format: str, dpi: int) -> None:
        path.touch()


@pytest.fixture(autouse=True)
def blank_pictures(request, monkeypatch):
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(drawing, "figure", lambda chart: _Blank())


@pytest.fixture
def pictures() -> None:
    """They are drawn."""


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """With nothing that this machine has stored."""
    monkeypatch.setenv("SPECBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def quiet_machine(own_cache):
    """Its noise floor is that of the made-up runs."""
    from floor_samples import store

    store(0.001)
