"""Analyses a trace of any engine; can keep a copy without names and the process environment."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.node_map import read_node_maps
from specbench.harness.profiling.nsys_trace import export_report
from specbench.harness.profiling.record import Profile, write_profile
from specbench.harness.profiling.redact import redact
from specbench.harness.profiling.rules import PhaseRules
from specbench.harness.profiling.trace_db import KINETO, trace_kind


def analyse(trace: Path, rules: Path | None, nodes: Path | None) -> Profile:
    """`rules`: the user's, read before the shipped ones. `nodes`: what splits graphs that hold several phases."""
    node_maps = () if nodes is None else read_node_maps(nodes)
    return analyse_trace(trace, rules=PhaseRules.shipped().with_file(rules), node_maps=node_maps)


def check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"output: {folder} exists and is not an empty folder; give another")


def keep(
    profile: Profile, trace: Path, folder: Path, write_reports: Callable[[], list[Path]]
) -> tuple[Path, list[Path]]:
    """The redacted copy, and the profile and its reports beside it.

    All or nothing: a folder without the redacted trace must not look like an import.
    """
    created = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _redacted(trace, folder), [write_profile(profile, folder), *write_reports()]
    except BaseException:
        if created:
            shutil.rmtree(folder)
        raise


def _redacted(trace: Path, directory: Path) -> Path:
    """The copy that is kept, named for what it holds; of an nsys report its export, which can be redacted."""
    kind = trace_kind(trace)
    with tempfile.TemporaryDirectory() as folder:
        original = trace if kind else export_report(trace, Path(folder))
        json_name = "trace.json.gz" if trace.suffix == ".gz" else "trace.json"
        copy = directory / (json_name if kind == KINETO else "trace.sqlite")
        redact(original, copy)
    return copy
