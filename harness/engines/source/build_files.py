"""Which files determine the result of compiling or installing a checkout; all others may differ between revisions that
share the same compiled parts. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import PurePosixPath

from specbench.workloads.guarded import parse_toml

PYPROJECT = "pyproject.toml"  # judged by its content
_SUFFIXES = frozenset(
    (
        *(".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".inc", ".inl", ".cu", ".cuh", ".hip", ".m", ".mm"),
        *(".metal", ".s", ".rs", ".pyx", ".pxd", ".pxi", ".proto", ".cmake", ".so", ".pyd", ".dylib"),
    )
)
_FOLDERS = ("csrc", "cmake", "requirements")
_NAMES = (
    *("CMakeLists.txt", "meson.build", "setup*.py", "setup.cfg", "MANIFEST.in", "requirements*.txt"),
    *("Cargo.toml", "Cargo.lock", ".gitmodules"),
)
_BUILD_TOOLS = ("setuptools*", "scikit-build*", "maturin", "hatch", "poetry", "pdm")


def is_of_build(path: str) -> bool:
    """`path`: below the root of a repository, with slashes."""
    file = PurePosixPath(path)
    return (
        file.suffix.lower() in _SUFFIXES
        or any(folder in _FOLDERS for folder in file.parts[:-1])
        or any(fnmatch.fnmatchcase(file.name, name) for name in _NAMES)
    )


def build_part(pyproject: str) -> Mapping[str, object]:
    """The content of a pyproject.toml, without tools that neither build nor install. ValueError for invalid TOML."""
    whole = parse_toml(pyproject)
    tools = {
        name: value
        for name, value in whole.get("tool", {}).items()
        if any(fnmatch.fnmatchcase(name, tool) for tool in _BUILD_TOOLS)
    }
    return {**whole, "tool": tools}
