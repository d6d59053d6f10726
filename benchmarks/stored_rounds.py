"""Decode rounds of one H200 whose traces the tests keep (tests/harness/profiling/golden): ours and vLLM's."""

from __future__ import annotations

import gzip
import json
import lzma
import tempfile
from pathlib import Path
from typing import Any

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.node_map import read_node_maps
from specbench.harness.profiling.record import Profile, Subject
from specbench.harness.profiling.rules import PhaseRules

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "harness" / "profiling" / "golden"


def own_round(arm: str) -> Profile:
    """Of `eagle` (three graphs, one wait for the host) or `naive-eagle` (one graph), both of the same model and K."""
    folder = GOLDEN / arm
    subject = Subject(**json.loads((folder / "engine.json").read_text(encoding="utf-8"))["subject"])
    return analysed(folder / "trace.sqlite.xz", subject=subject, node_maps=read_node_maps(folder / "nodes.json"))


def vllm_round(name: str) -> Profile:
    """Of a file in `golden/vllm`."""
    return analysed(GOLDEN / "vllm" / name)


def analysed(packed: Path, **known: Any) -> Profile:
    """`known`: what else is known of the trace, as for `analyse_trace`."""
    data = packed.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / packed.stem
        path.write_bytes(lzma.decompress(data) if packed.suffix == ".xz" else gzip.decompress(data))
        return analyse_trace(path, rules=PhaseRules.shipped(), **known)
