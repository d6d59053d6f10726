"""The Python interpreter that has another engine installed, and the engine's version."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from specbench.harness.engines.process.supervised import foreign_environment
from specbench.harness.spec.arm import ArmConfig

_ASK_S = 60  # for an interpreter to start, on a busy machine with a cold disk
_VERSIONS = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try:
        print(importlib.metadata.version(name))
        break
    except importlib.metadata.PackageNotFoundError:
        pass
"""


def named(arm: ArmConfig, variable: str, package: str, engine: str) -> str:
    """The environment that the arm or the environment variable names; else our own Python, if it has the engine."""
    given = arm.engine.get("python") or os.environ.get(variable, "")
    if not given and find_spec(package) is None:
        raise ValueError(
            f"python: this environment has no {engine}; name one that has it: --engine-python VENV or {variable}"
        )
    return given or sys.executable


def interpreter(given: str) -> Path:
    """An interpreter, or that of a virtual environment. ValueError if there is none."""
    path = Path(given).expanduser()
    found = path / "bin" / "python" if path.is_dir() else path
    if not (found.is_file() and os.access(found, os.X_OK)):
        raise ValueError(f"python: {given!r} is not allowed; give a virtual environment or a Python interpreter")
    return found.absolute()  # not resolved: a virtual environment's python is a link


def asked(python: Path, code: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """The outcome of `code` in this interpreter, with `words` as its arguments and `text` as its input. It finds the
    packages that a child finds, which is started by path: those on a PYTHONPATH (`python` may be a script that sets
    one), nothing in the current directory."""
    command = [str(python), "-c", f"import sys; sys.path[:] = filter(None, sys.path)\n{code}", *words]
    environment = foreign_environment()
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=_ASK_S, env=environment)


def installed(python: Path, distributions: Sequence[str]) -> str:
    """Version of the first of these distributions that this interpreter has. ValueError if it has none."""
    try:
        answer = asked(python, _VERSIONS, *distributions)
        answer.check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"python: {python} is not allowed; it does not run: {error}") from error
    if not answer.stdout.strip():
        raise ValueError(f"python: {python} has no {distributions[0]}; install it there or name another environment")
    return answer.stdout.strip()
