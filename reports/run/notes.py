"""The notes below a run's tables: how to read the columns, the configuration, and the command to repeat the run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from specbench.harness.metrics.speedup import NO_INTERVAL
from specbench.harness.stats.slos import Slos, describe_slos
from specbench.harness.store.arm_record import FORCED
from specbench.harness.store.files import to_plain
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.results import ArmSummary
from specbench.harness.store.run_record import PooledRun, RunRecord
from specbench.reports.cells import compact, machine_notes
from specbench.reports.run.accuracy_columns import accuracy_conventions
from specbench.reports.run.graph_columns import graph_conventions
from specbench.reports.run.roofline_table import roofline_column
from specbench.reports.run.view import RunView


def footnotes(view: RunView) -> list[tuple[str, str]]:
    """What a reader needs in order to judge and repeat the table: (name, value) pairs, in a fixed order."""
    record, config = view.record, view.record.config
    workload = record.workload or WorkloadRecord()
    num_prompts = "?" if workload.num_prompts is None else workload.num_prompts
    prompts = f"{num_prompts} {'synthetic ' if workload.synthetic else ''}prompts"
    words = [word for word in (workload.name, workload.rule, workload.source) if word]
    notes = [
        ("run", f"{record.run_id} ({view.status})"),
        ("workload", ", ".join([*words, prompts]) if words else f", {prompts}"),
        ("workload sha256", workload.sha256 or "unknown"),
        ("model", compact(to_plain(record.model)) if record.model else config.model if config else ""),
        ("sampling", compact(to_plain(record.sampling))),
        ("engine", config.engine if config and config.engine != "specbench" else ""),
        ("hardware", record.environment.describe_hardware()),
        ("specbench", record.git.describe() if record.git else ""),
        ("command", record.command),
        *(("pooled", text) for text in _pooled(record.pooled)),
    ]
    return [(name, value) for name, value in notes if value]


def _pooled(runs: Sequence[PooledRun]) -> Iterator[str]:
    """Where each repeat comes from."""
    for number, run in enumerate(runs, start=1):
        code = run.code or "unknown"
        yield f"repeat {number}: {run.run_id}, started {run.started_utc}, specbench {code}: {run.command}"


def conventions(view: RunView) -> list[str]:
    """How to read the columns, with the numbers of repeats and prompts."""
    num_repeats = sorted({arm.num_repeats for arm in view.arms if arm.num_repeats})
    repeats = " or ".join(map(str, num_repeats)) or "no"
    noun = "repeat" if repeats == "1" else "repeats"
    lines = [f"TPS, TPOT and TTFT: medians over {repeats} {noun}; spread: half of (max - min) / median of TPS."]
    if any(arm.speedup for arm in view.arms) and not view.record.is_imported:
        lines.append(f"(x): TPS against {_baseline_of(view.arms)} of this run, on the same prompts.")
    intervals = [arm.acceptance.acceptance_length_interval for arm in view.arms if arm.acceptance]
    methods = [interval.method for interval in intervals if interval]
    if methods:
        lines.append(f"AL: tokens per verification, the bonus token included, all repeats pooled [{methods[0]}].")
        if view.record.sampling is not None and view.record.sampling.ignore_eos:
            lines.append("ignore_eos: outputs run past their end-of-sequence token and often loop, which inflates AL.")
    if view.roofline.machine and roofline_column(view.roofline.arms):
        lines.append(
            "of roofline: ideal / measured time of a decode round, and what takes most of the ideal time; "
            f"{view.roofline.machine.describe()}."
        )
    return lines + reasons(view)


def reasons(view: RunView) -> list[str]:
    """Why intervals and figures are missing and why outputs differ, activity on the machine during blocks, and the
    notes of trace and evaluation columns."""
    baselines = [arm.speedup.baseline for arm in view.arms if arm.speedup]
    once = any(arm.speedup and arm.speedup.method.endswith(NO_INTERVAL) for arm in view.arms)
    return [
        *([goodput_note(view.slos)] if view.slos else []),
        *(_of_imports(baselines[0]) if baselines and view.record.is_imported else []),
        *([f"{NO_INTERVAL} ({_more_repeats(view.record)})."] if once else []),
        *_other_outputs(view),
        *_machine(view),
        *_unknown(view),
        *graph_conventions(view.graphs),
        *accuracy_conventions(view.accuracy),
    ]


def _more_repeats(record: RunRecord) -> str:
    planned = record.config.num_repeats if record.config else 1
    return f"{planned} repeats are planned" if planned > 1 else "--num-repeats 3 measures three"


def goodput_note(slos: Slos) -> str:
    return (
        f"goodput: requests/s that kept {describe_slos(slos)}, median over repeats; in brackets their share of all "
        "requests, failed ones included."
    )


def _other_outputs(view: RunView) -> list[str]:
    """Why outputs differ from the baseline's, if some do."""
    arms = [
        arm for arm in view.arms if arm.speedup and (arm.speedup.same_output_rate or 0) < 1 and arm.speedup.num_pairs
    ]
    if not arms or view.record.is_imported:
        return []
    forced = all(any(mark.startswith(FORCED) for mark in arm.marks) for arm in arms)
    if forced:
        reason = "forced acceptance keeps drafts that the model would not produce"
    elif all(any(mark.startswith("drawn drafts") for mark in arm.marks) for arm in arms) and _is_sampled(view):
        reason = "drawn drafts use different random numbers and are equally valid"
    elif view.record.model is not None and view.record.model.dtype in ("bfloat16", "float16"):
        reason = (
            f"in {view.record.model.dtype} the two best tokens are sometimes exactly tied, and a forward of several "
            "rows rounds differently than one of a single row"
        )
    else:
        reason = "a forward of several rows rounds differently than one of a single row, which decides near-ties"
    tell = "" if forced else f"; ties or errors: specbench certify --run {shlex.quote(str(view.path))}"
    baseline = _baseline_of(arms)
    return [f"same output: share of requests whose tokens equal those of {baseline}; below 100%: {reason}{tell}"]


def _baseline_of(arms: Sequence[ArmSummary]) -> str:
    """In a run of several engines there may be one for each."""
    names = dict.fromkeys(repr(arm.speedup.baseline) for arm in arms if arm.speedup)
    return " or ".join(names) + (", whichever is of the arm's own engine" if len(names) > 1 else "")


def _is_sampled(view: RunView) -> bool:
    return view.record.sampling is not None and view.record.sampling.is_sampled


def _machine(view: RunView) -> list[str]:
    """Activity on the machine during the blocks; for an A/B, its verdict has it."""
    if view.record.ab is not None or not view.seen:
        return []
    loads = [load for record in view.seen for load in record.load_average or () if load is not None]
    found = [f"load average: {min(loads):.2f} to {max(loads):.2f}"] if loads else []
    found += machine_notes([record.machine for record in view.seen])
    unchecked = dict.fromkeys(what for record in view.seen for what in record.unchecked)
    found += [f"not checked: {what}" for what in unchecked]
    return [f"around the blocks: {'; '.join(found)}."] if found else []


def _of_imports(baseline: str) -> list[str]:
    return [
        f"TPS (x): against {baseline!r}, of one run each and without an interval. TPOT (x): geometric mean of ratios "
        "over requests; the marks say how they are paired.",
        "The interval covers the requests, not the drift of the machine between runs.",
    ]


def _unknown(view: RunView) -> list[str]:
    """What the engines of the arms do not report."""
    by_reason: dict[str, dict[str, None]] = {}
    for arm in view.record.arms:
        for fact, reason in arm.unknown.items():
            by_reason.setdefault(reason, {})[fact.value.replace("_", " ")] = None
    return [f"A dash for {', '.join(facts)}: {reason}." for reason, facts in by_reason.items()]
