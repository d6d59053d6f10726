"""The layout that packaging depends on: folders at the root, installed as the namespace `specbench`."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
API = "harness/api"  # the package `specbench` itself
FOLDERS = ("harness", "kernels", "reports", "strategies", "workloads")


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_in_the_wheel(project):
    """A wheel silently leaves out a folder that is not listed, while an editable install has it."""
    found = {
        "specbench." + ".".join(path.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    listed = project["tool"]["setuptools"]["packages"]
    assert set(listed) == found - {"specbench.harness.api"} | {"specbench"} and listed == sorted(listed)
    mapped = project["tool"]["setuptools"]["package-dir"]
    assert mapped == {"specbench": API, **{f"specbench.{folder}": folder for folder in FOLDERS}}


def test_root_folders_have_no_init_file():
    """With one, `kernels` or `harness` would shadow packages of those names wherever the checkout is on the path."""
    assert not [folder for folder in (*FOLDERS, "tests") if (ROOT / folder / "__init__.py").exists()]
    assert not (ROOT / "__init__.py").exists()


def test_each_folder_says_that_it_is_typed(project):
    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["*"]
    assert not [folder for folder in FOLDERS if not (ROOT / folder / "py.typed").exists()]


def test_every_data_file_is_in_the_wheel(project):
    """Heads and tables lie in folders that are no packages; what no pattern names stays out without a word."""
    data = project["tool"]["setuptools"]["package-data"]
    listed = {
        path
        for folder in (*FOLDERS, API)
        for pattern in (*data["*"], *data.get(f"specbench.{folder}", ()))
        for path in (ROOT / folder).glob(pattern)
    }
    found = {
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert found <= listed and any(path.name == "model.safetensors" for path in found)


def test_tool_links_point_at_the_folders():
    links = {link.name: link.resolve() for link in (ROOT / ".ns" / "specbench").iterdir() if link.name != "__pycache__"}
    own = {path.name: path for path in (ROOT / API).iterdir() if path.is_file()}
    assert links == {**{folder: ROOT / folder for folder in FOLDERS}, **own}


def test_the_public_package_is_not_imported_by_another_name():
    """Its classes would exist twice, and be different classes."""
    import specbench

    assert Path(specbench.__file__).resolve() == ROOT / API / "__init__.py"
    with pytest.raises(ImportError, match="installed as the package `specbench`"):
        importlib.import_module("specbench.harness.api")


def test_tests_import_this_checkout():
    import specbench.kernels.philox as module

    assert Path(module.__file__).resolve() == ROOT / "kernels" / "philox.py"


def test_an_editable_install_finds_the_folders(tmp_path):
    """It knows harness/api as `specbench` and nothing below; the file's own path leads to the rest."""
    code = f"""if True:
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("specbench", "{ROOT / API / "__init__.py"}")
        sys.modules["specbench"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["specbench"])
        import specbench.reports.cells, specbench.harness.exit_codes"""
    subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, env={"PATH": os.environ["PATH"]}, check=True)


def test_name_version_and_command(project):
    assert project["project"]["name"] == "specbench-harness"
    assert re.fullmatch(r"\d+\.\d+\.\d+", project["project"]["version"])
    assert project["project"]["scripts"]["specbench"] == "specbench.__main__:main"
    from specbench.harness.cli.main import main

    assert callable(main)


def test_the_registry_names_files_that_exist():
    from specbench.harness import registry

    assert sum(bool(table.built_in) for table in registry.TABLES) >= 4
    for table in registry.TABLES:
        for target in table.built_in.values():
            module = target.partition(":")[0].split(".")[1:]
            assert (ROOT.joinpath(*module).with_suffix(".py")).exists(), target


def test_markers_are_declared(project):
    markers = " ".join(project["tool"]["pytest"]["ini_options"]["markers"])
    assert all(f"{name}:" in markers for name in ("gpu", "slow", "timed"))


def test_ci_installs_a_known_version_of_every_dependency(project):
    """Otherwise a release elsewhere fails a commit here."""
    project = project["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    named = {_package(line) for line in asked if "python_version <" not in line}
    files = [(ROOT / name).read_text().splitlines() for name in ("constraints.txt", ".ci/versions.txt")]
    pinned = [_package(line) for lines in files for line in lines if line[0] not in "#-"]
    assert named <= {*pinned} and len(pinned) == len({*pinned})


def _package(requirement: str) -> str:
    """Its normalised name."""
    return re.split(r"[^\w.-]", requirement)[0].replace("_", "-").lower()
