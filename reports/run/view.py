"""A stored run, read and summarised once, for every kind of report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from specbench.harness.metrics.metrics import results_of
from specbench.harness.store.files import Json, to_plain
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.results import ArmSummary, BlockFigures
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord
from specbench.reports.experiments.certificate_marks import failed_marks
from specbench.reports.run.accuracy_columns import accuracy_conventions
from specbench.reports.run.accuracy_view import AccuracyView, view_accuracy
from specbench.reports.run.graph_columns import GraphsView, graph_conventions, graph_marks, view_graphs


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """The run record, the arms' summaries, the figures of every block, the requests' raw rows, and the scores
    and traces where the arms were evaluated and traced."""

    record: RunRecord
    arms: tuple[ArmSummary, ...]
    blocks: Mapping[tuple[str, int], BlockFigures]
    requests: pd.DataFrame
    accuracy: AccuracyView | None = None
    graphs: GraphsView | None = None


def view_run(run: RunDirectory | str | os.PathLike[str]) -> RunView:
    """Read a run directory, finished or not; ValueError where `RunDirectory.open` raises it."""
    directory = run if isinstance(run, RunDirectory) else RunDirectory.open(run)
    directory.check_has_tables()
    results, graphs = results_of(directory), view_graphs(directory.path)
    marks = (failed_marks(directory.path), graph_marks(graphs))
    arms = [replace(a, marks=(*a.marks, *(m[a.label] for m in marks if a.label in m))) for a in results.arms]
    return RunView(
        record=directory.record,
        arms=tuple(arms),
        blocks=results.by_block(),
        requests=directory.frames().requests,
        accuracy=view_accuracy(directory),
        graphs=graphs,
    )


def footnotes(view: RunView) -> list[tuple[str, str]]:
    """What a reader needs to judge and repeat the table: (name, value) pairs, in a fixed order."""
    record, config = view.record, view.record.config
    workload = record.workload or WorkloadRecord()
    num_prompts = "?" if workload.num_prompts is None else workload.num_prompts
    prompts = f"{num_prompts} {'synthetic ' if workload.synthetic else ''}prompts"
    words = [word for word in (workload.name, workload.rule, workload.source) if word]
    notes = [
        ("run", f"{record.run_id} ({record.status})"),
        ("workload", ", ".join([*words, prompts]) if words else f", {prompts}"),
        ("workload sha256", workload.sha256 or "unknown"),
        ("model", compact(to_plain(record.model)) if record.model else config.model if config else ""),
        ("sampling", compact(to_plain(record.sampling))),
        ("engine", config.engine if config and config.engine != "specbench" else ""),
        ("hardware", record.environment.describe_hardware()),
        ("specbench", record.git.describe() if record.git else ""),
        ("command", record.command),
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
    intervals = [arm.acceptance.acceptance_length_interval for arm in view.arms if arm.acceptance]
    methods = [interval.method for interval in intervals if interval]
    if methods:
        lines.append(f"AL: tokens per verification with the bonus token, all repeats pooled [{methods[0]}].")
        if view.record.sampling is not None and view.record.sampling.ignore_eos:
            lines.append("ignore_eos: answers run on past their end, where text repeats itself: AL is flattered.")
    return lines + _unknown(view) + graph_conventions(view.graphs) + accuracy_conventions(view.accuracy)


def _unknown(view: RunView) -> list[str]:
    """Why figures are dashes: what the engines of the arms do not tell."""
    by_reason: dict[str, dict[str, None]] = {}
    for arm in view.record.arms:
        for fact, reason in arm.unknown.items():
            by_reason.setdefault(reason, {})[fact.value.replace("_", " ")] = None
    return [f"-: {reason}; not known: {', '.join(facts)}." for reason, facts in by_reason.items()]


def compact(value: Json | Mapping[str, Json]) -> str:
    """A configuration value in one line: `temperature=0.0, seed=42`; nested values keep only what is set."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={compact(v)}" for k, v in value.items() if v not in (None, {}, [], ""))
    if isinstance(value, list):
        return "[" + ", ".join(compact(item) for item in value) + "]"
    return "" if value is None else str(value)
