"""How slow this machine is at Python: limits on processor time hold on the machine on which they were set."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_USUAL_S = 0.047  # of `_work` on the machine on which the limits were set


def slower() -> float:
    """At least 1: by how much a limit on processor time must be raised here. Median of five."""
    return max(1.0, statistics.median(_work_s() for _ in range(5)) / _USUAL_S)


def run_with_pace(code: str, *arguments: Path) -> dict[str, Any]:
    """What Python code prints as JSON, and `slower`, right before and after it: a shared machine's pace changes."""
    before = slower()
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT / ".ns")}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout) | {"slower": (before + slower()) / 2}


def _work_s() -> float:
    """Objects are made, written, read and sorted, as reports and traces make them."""
    begun = time.process_time()
    rows = [{"name": f"row {n}", "values": [n * 0.5, n % 7, str(n)]} for n in range(20_000)]
    groups: dict[int, list[float]] = {}
    for row in json.loads(json.dumps(rows)):
        groups.setdefault(row["values"][1], []).append(row["values"][0])
    assert sum(len(sorted(values)) for values in groups.values()) == len(rows)
    return time.process_time() - begun
