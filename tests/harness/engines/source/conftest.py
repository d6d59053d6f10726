"""A checkout of a toy engine, an environment that has it, and a cache of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy.engine_checkout import BEHIND, make_checkout, make_finder

from specbench.harness.engines.source.laid_out import FOLDER


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "engine")


@pytest.fixture
def venv(tmp_path: Path, checkout: Path) -> Path:
    return make_finder(tmp_path / "venv", checkout, BEHIND)


@pytest.fixture
def python(venv: Path) -> Path:
    return venv / "bin" / "python"


@pytest.fixture
def laid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where revisions are laid out."""
    monkeypatch.setenv("SPECBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / FOLDER
