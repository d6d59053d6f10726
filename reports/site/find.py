"""Finds the run directories in given paths: runs, folders of runs, histories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from specbench.harness.judge.stored import Problem

_RUN_NAME = re.compile(r"\d{8}T\d{6}Z-")  # what `RunDirectory.create` begins every name with
_RUNS = "runs"  # where a history and a sweep keep their runs
_SWEEP = "sweep.json"


def find_runs(paths: Iterable[Path]) -> tuple[list[Path], list[Problem]]:
    """Every run directory given or inside a given folder, each once, and problems with paths that only look like
    runs. Pages show the paths: they are relative below the current folder."""
    here = Path.cwd()
    found: dict[Path, None] = {}
    problems = []
    for path in paths:
        if path.name in ("run.json", _SWEEP):
            path = path.parent
        if path.exists() and not path.is_dir():
            problems.append(Problem.at(path, "is not a directory; give a run directory or a folder of runs"))
        elif not path.is_dir():
            problems.append(Problem.at(path, "there is no such directory"))
        elif (path / "run.json").is_file():
            found[path.resolve()] = None
        else:
            inside, broken = _inside(path)
            if not inside and not broken:
                problems.append(Problem.at(path, "no run.json, and no runs in it"))
            found |= dict.fromkeys(inside)
            problems += broken
    return [path.relative_to(here) if here in path.parents else path for path in found], problems


def histories(paths: Iterable[Path]) -> list[Path]:
    """The given folders that have changes accepted by a maintainer."""
    return [path for path in paths if (path / "history.toml").is_file()]


def _inside(folder: Path) -> tuple[list[Path], list[Problem]]:
    """Runs one level below, in the folder `runs`, and in sweeps there. A folder that is named like a run but has no
    run.json, or whose name is not UTF-8, is reported."""
    found, problems = [], []
    for child in _folders(folder):
        name = str(child).encode(errors="backslashreplace").decode()
        if name != str(child):  # no page can show it
            problems.append(Problem.at(name, "its name is not UTF-8; rename it"))
        elif child.is_symlink():
            problems.append(Problem.at(child, "is a symbolic link, which is never followed"))
        elif not os.access(child, os.R_OK | os.X_OK):
            problems.append(Problem.at(child, "cannot be read: permission denied"))
        elif (child / "run.json").is_file():
            found.append(child.resolve())
        elif (child / _SWEEP).is_file():
            inside, broken = _inside(child)
            found += inside
            problems += broken
        elif _RUN_NAME.match(child.name):
            problems.append(Problem.at(child, "no run.json: incomplete, or not a run"))
    return found, problems


def _folders(folder: Path) -> Iterator[Path]:
    for parent in (folder, folder / _RUNS):
        if not parent.is_dir() or (parent != folder and parent.is_symlink()):  # a link is among the children
            continue
        for child in sorted(parent.iterdir()):
            if child.is_dir() and not child.name.startswith("."):
                yield child
