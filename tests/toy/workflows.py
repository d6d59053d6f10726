"""The workflows that are ready to copy, and their steps run as GitHub runs them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from . import warm
from .interrupts import QUIET_PROC

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "reports" / "templates"
NAMES = ("specbench", "specbench-engine", "specbench-head")
Workflow = dict[Any, Any]
SPECBENCH = f"""
import math
from pathlib import Path
from specbench.__main__ import main
from specbench.harness.metrics import doubts
from specbench.harness.run import machine_state

doubts.MAX_GAIN, machine_state.PROC = math.inf, Path({str(QUIET_PROC)!r})  # as for the tests' own process
main()
"""


def read(name: str) -> Workflow:
    found: Workflow = yaml.safe_load((TEMPLATES / f"{name}.yml").read_text())
    return found


@dataclass(frozen=True)
class Runner:
    """A machine whose `specbench` is this checkout's. `folder`: where the steps run; `env`: in place of the
    workflow's."""

    workflow: Workflow
    folder: Path
    env: Mapping[str, str]

    def steps(self) -> dict[str, int]:
        """Runs every step that calls specbench, whatever became of those before; exit codes by the steps' names."""
        tools = self.folder.parent / "bin"
        tools.mkdir(exist_ok=True)
        warm.program(tools / "specbench", SPECBENCH)
        env = {
            **os.environ,
            **self.workflow["env"],
            **self.env,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / ".ns"),
            "OMP_NUM_THREADS": "1",
            "GITHUB_STEP_SUMMARY": str(self.folder.parent / "summary.md"),
        }
        codes = {}
        for step in self.workflow["jobs"]["gate"]["steps"]:
            if step.get("run", "").startswith("specbench "):
                done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=self.folder, env=env)
                codes[step["name"]] = done.returncode
        return codes
