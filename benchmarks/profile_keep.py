"""The small part of run directories of `specbench profile run`: `python benchmarks/profile_keep.py RUN ...`.

No timeline, the ten longest kernels and those of attention, no paths; with the host's own median round.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specbench.harness.profiling.job import ChildReport
from specbench.harness.store.run_directory import RunDirectory

RESULTS = Path(__file__).parent / "results" / "profiles-h200"
NUM_KERNELS = 10

Arm = dict[str, Any]


def keep(run: Path) -> None:
    record = RunDirectory.open(run).record
    folders = [(file.parent, json.loads(file.read_text())) for file in run.glob("profile/*/profile.json")]
    labels = [arm.label for arm in record.arms]
    arms = sorted((_small(folder, p) for folder, p in folders), key=lambda arm: labels.index(arm["subject"]["arm"]))
    kept = {"command": _command(record.argv), "started_utc": record.started_utc, "arms": arms}
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{record.label}.json"
    target.write_text(json.dumps(kept, separators=(",", ":")).replace('{"source"', '\n{"source"') + "\n")


def _small(folder: Path, profile: Arm) -> Arm:
    rounds = ChildReport.read(folder).rounds
    kernels = profile["kernels"]
    source = {key: profile["source"][key] for key in ("kind", "tool", "schema_version", "sha256", "devices")}
    subject = {key: value for key, value in profile["subject"].items() if key != "profiler_argv"}
    return {
        **profile,
        "source": source,
        "subject": subject,
        "kernels": [k for i, k in enumerate(kernels) if i < NUM_KERNELS or k["is_attention"]],
        "timeline": [],
        "host_round_ns": rounds.median_ns,
    }


def _command(argv: Sequence[str]) -> str:
    """Without its output folder, label and -q; a line for each strategy, the model and the tool."""
    text = re.sub(r" (--output-dir|--label) \S+| -q\b", "", " ".join(argv))
    return re.sub(r" (?=-s |--model|--tool)", " \\\n        ", text)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        keep(Path(argument))
