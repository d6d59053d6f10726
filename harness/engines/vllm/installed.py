"""The vLLM of an interpreter: its version and speculation methods, without importing it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.child.interpreter import asked, installed

OLDEST, NEWEST = (0, 26), (0, 33)  # minor versions whose names were checked
METHODS_FILE = "config/speculative.py"  # of the package
# Prints every string in the types that list the methods in this file: the installed one, or the text on stdin.
_METHODS = """
import ast, importlib.util, json, pathlib, sys
root = pathlib.Path(importlib.util.find_spec("vllm").origin).parent
text = sys.stdin.read() or (root / "config" / "speculative.py").read_text()
names = set()
for node in ast.parse(text).body:
    targets = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
    if any(t.endswith(("ModelTypes", "GPUTypes", "SpeculativeMethod")) for t in targets):
        names |= {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
print(json.dumps(sorted(names)))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """`notes`: about the version, for the reader of its rows."""

    python: Path
    version: str
    methods: tuple[str, ...]

    @property
    def is_for_cpu(self) -> bool:
        return "+cpu" in self.version

    @property
    def notes(self) -> tuple[str, ...]:
        if minor_of(self.version) <= NEWEST:
            return ()
        return (f"vLLM {self.version} is newer than those whose configuration was checked (up to 0.{NEWEST[1]})",)


def find(python: Path) -> Installed:
    """ValueError if the interpreter has no vLLM, or one that is too old."""
    version = installed(python, ["vllm"])
    if minor_of(version) < OLDEST:
        raise ValueError(f"python: vLLM {version} of {python} is too old; allowed: 0.{OLDEST[1]} or newer")
    return Installed(python=python, version=version, methods=methods(python, version))


def methods(python: Path, version: str, text: str = "") -> tuple[str, ...]:
    """The methods of the installed version, or from the `text` of another version's METHODS_FILE. ValueError if they
    cannot be read."""
    done = asked(python, _METHODS, text=text)
    if done.returncode:
        raise ValueError(f"python: vLLM {version} of {python} does not list its methods: {done.stderr.strip()[-200:]}")
    return tuple(json.loads(done.stdout))


def minor_of(version: str) -> tuple[int, int]:
    """`0.32.0+cpu` as (0, 32); a version of another form is a user's own build and counts as new."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else NEWEST
