"""Packages as pip would have installed them, without pip: a folder that goes on sys.path."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture
def site(tmp_path: Path, monkeypatch) -> Path:
    """A folder of packages, for this process and those it starts."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def install(site: Path, name: str, version: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """The metadata of a package: its entry points by group and name."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, points in entry_points.items()
        for line in (f"[{group}]", *(f"{key} = {target}" for key, target in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


def install_project(site: Path, project: Path) -> None:
    """What `pip install` would make of a folder with a pyproject.toml and the modules it names."""
    described = tomllib.loads((project / "pyproject.toml").read_text())
    for module in described["tool"]["setuptools"]["py-modules"]:
        shutil.copy(project / f"{module}.py", site)
    own = described["project"]
    install(site, own["name"], own["version"], own["entry-points"])
