"""The notes below a run's tables: how to read the columns, the configuration, and the command to repeat the run."""

from __future__ import annotations

from specbench.harness.store.files import to_plain
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.reports.cells import compact
from specbench.reports.run.accuracy_columns import accuracy_conventions
from specbench.reports.run.graph_columns import graph_conventions
from specbench.reports.run.view import RunView


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
    """How to read the columns, with the numbers of repeats and prompts behind them."""
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
            lines.append("ignore_eos: outputs continue past their end and repeat themselves, which inflates AL.")
    return lines + _unknown(view) + graph_conventions(view.graphs) + accuracy_conventions(view.accuracy)


def _unknown(view: RunView) -> list[str]:
    """Why figures are dashes: what the engines of the arms do not report."""
    by_reason: dict[str, dict[str, None]] = {}
    for arm in view.record.arms:
        for fact, reason in arm.unknown.items():
            by_reason.setdefault(reason, {})[fact.value.replace("_", " ")] = None
    return [f"-: {reason}; not known: {', '.join(facts)}." for reason, facts in by_reason.items()]
