"""Whether the arms of a run ran as their rows say: a short trace of each in the run's own process, after its blocks.

The graphs that were timed are the ones that are traced. What comes of it is stored beside the run's tables and never
read as speed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from specbench.harness.arms import ResolvedArm
from specbench.harness.engine.engine import Engine
from specbench.harness.engine.sampler import SamplingMode
from specbench.harness.run.drive import Load

from .analysis import analyse_trace
from .child import write_nodes
from .node_map import FILE as NODES
from .node_map import read_node_maps
from .profile_run import with_notes
from .record import FAILURE, FILE, Profile, write_profile
from .rules import PhaseRules
from .steady import IGNORED_STOPS, trace_rounds
from .subject import subject_of
from .tracers import TorchTracer

NUM_ROUNDS = 20


@torch.inference_mode()
def certify_arm(arm: ResolvedArm, engine: Engine, load: Load, folder: Path, num_rounds: int = NUM_ROUNDS) -> Profile:
    """Traces an idle engine on a GPU and leaves `nodes.json` and `profile.json` in `folder`, the latter last.

    Raises what `trace_rounds` and `analyse_trace` raise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mode = SamplingMode.of([load.request(0).sampling])
    engine.launcher.capture([mode])  # a resumed run has a new engine; one that was timed has its graphs
    notes = [IGNORED_STOPS] if load.stop_token_ids else []
    notes += write_nodes(engine, min(load.max_concurrency, engine.config.max_num_seqs), mode, folder)
    with tempfile.TemporaryDirectory(prefix="specbench-profile-") as scratch:
        trace = Path(scratch) / "trace.json"
        rounds = trace_rounds(engine, load, num_rounds, TorchTracer(trace, engine.target.device))
        profile = analyse_trace(
            trace,
            rules=PhaseRules.shipped(),
            node_maps=read_node_maps(folder / NODES),
            subject=subject_of(arm, engine, mode, rounds, None),
        )
    profile = with_notes(profile, notes)
    write_profile(profile, folder)
    (folder / FAILURE).unlink(missing_ok=True)  # an earlier try's
    return profile


def is_certified(folder: Path) -> bool:
    return (folder / FILE).is_file()


def write_failure(folder: Path, arm: str, error: BaseException) -> None:
    """An arm whose trace came to nothing: its row says so, and a resumed run tries again."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = str(error).splitlines() or [type(error).__name__]
    (folder / FAILURE).write_text(json.dumps({"arm": arm, "error": lines[0]}), encoding="utf-8")
