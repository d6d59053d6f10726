"""Checks that the arms of a run ran as their rows claim: a short trace of each, in the run's process, after its blocks.

The traced graphs are the ones that were timed. The result is stored next to the run's tables and is never used as a
speed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from specbench.harness.engines.base import Deployment, ResolvedArm
from specbench.harness.engines.load import Load
from specbench.harness.store.files import write_json
from specbench.workloads.guarded import first_line

from .analysis import analyse_trace
from .job import subject_of
from .node_map import FILE as NODES
from .node_map import write_node_maps
from .profile_file import FAILURE, write_profile
from .record import Profile
from .rules import PhaseRules
from .tracers import TorchTracer

NUM_ROUNDS = 20


def certify_arm(arm: ResolvedArm, deployment: Deployment, load: Load, folder: Path) -> Profile:
    """Traces an idle deployment on a GPU and writes `nodes.json` and `profile.json` into `folder`, the latter last.
    Raises the errors of `Deployment.trace` and `analyse_trace`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="specbench-profile-") as scratch:
        trace = Path(scratch) / "trace.json"
        traced = deployment.trace(load, NUM_ROUNDS, TorchTracer(trace, torch.device("cuda")))
        write_node_maps(traced.node_maps, folder / NODES)
        profile = analyse_trace(
            trace,
            rules=PhaseRules.shipped(),
            node_maps=traced.node_maps,
            subject=subject_of(arm, traced),
            notes=traced.notes,
        )
    write_profile(profile, folder)
    (folder / FAILURE).unlink(missing_ok=True)  # an earlier try's
    return profile


def write_failure(folder: Path, arm: str, error: BaseException) -> None:
    """Records that an arm could not be traced: its row says so, and a resumed run tries again."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FAILURE, {"arm": arm, "error": first_line(error)})
