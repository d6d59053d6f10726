"""A stored run, read and summarised once, for every kind of report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from specbench.harness.metrics.metrics import ArmSummary, measure_blocks, summarise
from specbench.harness.store.environment import hardware_line
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.accuracy_columns import accuracy_conventions
from specbench.reports.accuracy_view import AccuracyView, view_accuracy
from specbench.reports.certificate_marks import failed_marks
from specbench.reports.graph_columns import GraphsView, graph_conventions, graph_marks, view_graphs


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """`run.json` as it stands, the arms' summaries, the figures of every block, the requests' raw rows, and the scores
    and traces where the arms were evaluated and traced."""

    manifest: Mapping[str, Any]
    arms: tuple[ArmSummary, ...]
    blocks: Mapping[tuple[str, int], Mapping[str, Any]]
    requests: pd.DataFrame
    accuracy: AccuracyView | None = None
    graphs: GraphsView | None = None


def view_run(run: RunDirectory | str | os.PathLike[str]) -> RunView:
    """Read a run directory, finished or not; ValueError where `RunDirectory.open` raises it."""
    directory = run if isinstance(run, RunDirectory) else RunDirectory.open(run)
    directory.check_has_tables()
    frames = directory.frames()
    graphs = view_graphs(directory.path)
    marks = (failed_marks(directory.path), graph_marks(graphs))
    arms = [replace(a, marks=(*a.marks, *(m[a.label] for m in marks if a.label in m))) for a in summarise(frames)]
    return RunView(
        manifest=directory.manifest,
        arms=tuple(arms),
        blocks=measure_blocks(frames),
        requests=frames.requests,
        accuracy=view_accuracy(directory),
        graphs=graphs,
    )


def footnotes(view: RunView) -> list[tuple[str, str]]:
    """What a reader needs to judge and repeat the table: (name, value) pairs, in a fixed order."""
    manifest = view.manifest
    workload, config = manifest.get("workload") or {}, manifest.get("config") or {}
    prompts = f"{workload.get('num_prompts', '?')} {'synthetic ' if workload.get('synthetic') else ''}prompts"
    notes = [
        ("run", f"{manifest['run_id']} ({manifest['status']})"),
        (
            "workload",
            ", ".join(str(workload[k]) for k in ("name", "rule", "source") if workload.get(k)) + f", {prompts}",
        ),
        ("workload sha256", str(workload.get("sha256", "unknown"))),
        ("model", compact(manifest.get("model") or config.get("model"))),
        ("sampling", compact(manifest.get("sampling") or config.get("sampling"))),
        ("engine", _engine(config)),
        ("hardware", hardware_line(manifest.get("environment") or {})),
        ("specbench", _commit(manifest.get("git"))),
        ("command", str(manifest["command"])),
    ]
    return [(name, value) for name, value in notes if value]


def conventions(view: RunView) -> list[str]:
    """How the columns are to be read, with the numbers of repeats and prompts behind them."""
    num_repeats = sorted({arm.num_repeats for arm in view.arms if arm.num_repeats})
    repeats = " or ".join(map(str, num_repeats)) or "no"
    noun = "repeat" if repeats == "1" else "repeats"
    lines = [f"TPS, TPOT and TTFT: medians over {repeats} {noun}; spread: half of max - min of TPS."]
    baselines = [arm.speedup.baseline for arm in view.arms if arm.speedup]
    if baselines:
        lines.append(f"(x): TPS against {baselines[0]!r} of this run, on the same prompts.")
    intervals = [arm.acceptance.get("acceptance_length_interval") for arm in view.arms if arm.acceptance]
    methods = [interval["method"] for interval in intervals if interval]
    if methods:
        lines.append(f"AL: tokens per verification with the bonus token, all repeats pooled [{methods[0]}].")
        sampling = view.manifest.get("sampling") or {}
        if sampling.get("ignore_eos"):
            lines.append("ignore_eos: answers run on past their end, where text repeats itself: AL is flattered.")
    return lines + _unknown(view) + graph_conventions(view.graphs) + accuracy_conventions(view.accuracy)


def _unknown(view: RunView) -> list[str]:
    """Why figures are dashes: what the engines of the arms do not tell."""
    by_reason: dict[str, dict[str, None]] = {}
    for arm in view.manifest["arms"]:
        for fact, reason in (arm.get("unknown") or {}).items():
            by_reason.setdefault(reason, {})[fact.replace("_", " ")] = None
    return [f"-: {reason}; not known: {', '.join(facts)}." for reason, facts in by_reason.items()]


def compact(value: Any) -> str:
    """A configuration value in one line: `temperature=0.0, seed=42`; nested values keep only what is set."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={compact(v)}" for k, v in value.items() if v not in (None, {}, [], ""))
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(compact(item) for item in value) + "]"
    return "" if value is None else str(value)


def _engine(config: Mapping[str, Any]) -> str:
    """Of runs that another engine than ours served."""
    name = str(config.get("engine", "specbench"))
    return "" if name == "specbench" else name


def _commit(git: Mapping[str, Any] | None) -> str:
    if not git:
        return ""
    return f"{git.get('sha') or 'no commit'}{' with local changes' if git.get('dirty') else ''}"
