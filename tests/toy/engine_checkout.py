"""A git checkout of the package that answers as SGLang does, and virtual environments that have it installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

FAKE = Path(__file__).with_name("fake_sglang")
PACKAGE = "python/sglang"  # below the root of the repository, as of the real one
# As setuptools finds an editable package: behind everything on sys.path; or in front, as other builds do.
FINDER = """
import sys
from importlib.util import spec_from_file_location

class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return spec_from_file_location(name, {init!r}) if name == "sglang" else None

sys.meta_path.{where}
"""
BEHIND, IN_FRONT = "append(Finder)", "insert(0, Finder)"


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_checkout(root: Path) -> Path:
    """Tags `first` and `second` say so in the version; a step of `second` takes longer. The version also tells what a
    generated file says that git ignores."""
    shutil.copytree(FAKE / "sglang", root / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "csrc").mkdir()
    (root / "csrc" / "kernel.cu").write_text("// one\n")
    (root / "pyproject.toml").write_text('[project]\nname = "sglang"\n[tool.ruff]\nline-length = 100\n')
    (root / ".gitignore").write_text("__pycache__/\n*.so\n_built.py\n")
    git(root.parent, "init", "-q", "-b", "main", str(root))
    edit(root, f"{PACKAGE}/__init__.py", '"0.5.16"', 'f"0.5.16+{_built.WHAT}.first"')
    edit(root, f"{PACKAGE}/__init__.py", "from sglang.scheduler", "from sglang import _built\nfrom sglang.scheduler")
    commit(root, "first")
    edit(root, f"{PACKAGE}/__init__.py", ".first", ".second")
    edit(root, f"{PACKAGE}/scheduler.py", "STEP_S = 0.002", "STEP_S = 0.02")
    commit(root, "second")
    (root / PACKAGE / "_built.py").write_text('WHAT = "built"\n')
    (root / PACKAGE / "kernel.so").write_text("compiled")
    return root


def edit(root: Path, file: str, before: str, after: str) -> None:
    text = (root / file).read_text()
    assert before in text
    (root / file).write_text(text.replace(before, after))


def commit(root: Path, tag: str) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", tag)
    git(root, "tag", tag)


def make_venv(folder: Path, *lines: str) -> Path:
    """`lines`: of the .pth file that makes its SGLang importable."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "editable_sglang.pth").write_text("".join(f"{line}\n" for line in lines))
    about = site / "sglang-0.5.16.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.16\n")
    return folder


def make_finder(venv: Path, root: Path, where: str) -> Path:
    """A venv that finds the package by a finder of its own, in place of a path."""
    make_venv(venv, "import editable_finder")
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "editable_finder.py").write_text(FINDER.format(init=str(root / PACKAGE / "__init__.py"), where=where))
    return venv


def state(root: Path) -> dict[str, object]:
    """Everything in a checkout, git's own files included."""
    found: dict[str, object] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            if "__pycache__" not in path.parts:
                found[str(path)] = path.read_bytes(), path.lstat().st_mtime_ns
    return found
