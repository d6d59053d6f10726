"""The figures that a finished run stored in its `run.json`: reading them takes milliseconds, deriving them seconds.

They were derived from the raw tables by the functions that every report uses. They are believed where the tables'
hashes still are those of `run.json`, and derived anew anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.harness.metrics.metrics import ArmSummary, measure_blocks, summarise
from specbench.harness.metrics.speedup import Speedup
from specbench.harness.stats.spread import Spread
from specbench.harness.store.files import sha256_file
from specbench.harness.store.run_directory import RunDirectory

Blocks = Mapping[tuple[str, int], Mapping[str, Any]]


def figures_of(directory: RunDirectory) -> tuple[tuple[ArmSummary, ...], Blocks]:
    """Summaries of the arms in the order of the run, and the figures of every measured block."""
    stored = directory.manifest.get("results") or {}
    if "arms" in stored and "blocks" in stored and _tables_are_those(directory):
        blocks = {(str(b["arm"]), int(b["repeat"])): b for b in stored["blocks"]}
        return tuple(_summary(arm) for arm in stored["arms"]), blocks
    frames = directory.frames()
    return tuple(summarise(frames)), measure_blocks(frames)


def _tables_are_those(directory: RunDirectory) -> bool:
    """Whether the raw tables are whole and nothing has changed them since the figures were derived."""
    files: Mapping[str, Any] = directory.manifest.get("files") or {}
    if not files or (directory.path / "parts").exists():
        return False
    paths = {directory.path / name: entry["sha256"] for name, entry in files.items() if name.endswith(".parquet")}
    return all(path.is_file() and sha256_file(path) == digest for path, digest in paths.items())


def _summary(raw: Mapping[str, Any]) -> ArmSummary:
    spreads = {name: Spread(**s) for name, s in raw["spreads"].items() if s["median"] is not None}
    compared = Speedup(**raw["speedup"]) if raw["speedup"] else None
    return ArmSummary(**{**raw, "spreads": spreads, "speedup": compared, "marks": tuple(raw["marks"])})
