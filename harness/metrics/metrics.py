"""Every figure of every table: `block_metrics` for one arm and repeat, `summarise` for the arms of a run.

Definitions are in the docstrings of `latency.py`, `acceptance.py`, `accounting.py` and `speedup.py`, which this module
combines. The figures depend on the raw tables alone, so a stored run can be reported again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

import pandas as pd

from specbench.harness.metrics.acceptance import acceptance_metrics
from specbench.harness.metrics.accounting import (
    RESIDUAL_LIMIT,
    accounting_identity,
    phase_metrics,
    round_metrics,
    step_table,
)
from specbench.harness.metrics.counted_acceptance import with_counted
from specbench.harness.metrics.counters import counter_marks, without_void
from specbench.harness.metrics.doubts import doubts
from specbench.harness.metrics.figures import OWN
from specbench.harness.metrics.imported_speedup import over_requests
from specbench.harness.metrics.latency import latency_metrics, throughput_metrics
from specbench.harness.metrics.registered import foreign_figures
from specbench.harness.metrics.speedup import baseline_of, speedup
from specbench.harness.stats.spread import Spread, spread, under
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.files import sha256_file
from specbench.harness.store.results import (
    Acceptance,
    AcceptanceInterval,
    ArmSummary,
    BlockFigures,
    Figures,
    PeerAcceptance,
    Results,
    SglangAcceptance,
    Speedup,
    StoredBlock,
    VllmAcceptance,
)
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_file import DERIVE_AGAIN
from specbench.harness.store.schema import FAILED_ARM_REQUEST_ID, TABLES, Frames

RULES = 1
"""Of intervals and marks; raised when rows that are stored get others than before."""

Block = tuple[str, int]
_Parts = AcceptanceInterval | PeerAcceptance | VllmAcceptance | SglangAcceptance


def block_metrics(
    requests: pd.DataFrame, steps: pd.DataFrame, phases: pd.DataFrame, counters: Mapping[str, float] | None = None
) -> BlockFigures:
    """All figures of one block (one arm, one repeat) from its raw rows; None where a figure has no data."""
    table = step_table(steps)
    latency = latency_metrics(requests, steps)
    failed = requests["finish_reason"].isin(["error", "abort"])
    accounting, source = accounting_identity(requests, steps, phases, table, latency["tpot_ms.weighted"])
    acceptance = with_counted(acceptance_metrics(requests, steps), counters or {})
    return BlockFigures(
        values={
            "num_requests": len(requests),
            "num_failed_requests": int(failed.sum()),
            "num_output_tokens": int(requests["num_output_tokens"].sum()),
            "num_preemptions": _known_sum(requests["num_preemptions"]),
            **throughput_metrics(requests, steps),
            **without_void(latency, counters or {}),
            **round_metrics(table),
            **under("phases_ms", phase_metrics(phases, table)),
            **under("accounting", accounting),
            **under("acceptance", _numbers(acceptance)),
            **under("counters", counters or {}),
            **{own.block: own.of_block(requests, steps, phases) for own in foreign_figures() if own.of_block},
        },
        acceptance=acceptance,
        phases=source,
    )


def _known_sum(values: pd.Series) -> int | None:
    """None if the engine does not report it."""
    return None if values.isna().any() else int(values.sum())


def summarise(blocks: Mapping[Block, BlockFigures], frames: Frames) -> tuple[ArmSummary, ...]:
    """One summary per arm, in the order of the run, including arms that failed or never ran. `blocks`: the figures of
    their blocks (`measure_blocks`)."""
    values = {block: figures.values for block, figures in blocks.items()}
    arms = _arms(frames)
    return tuple(_summarise_arm(arm, baseline_of(arm, arms), values, frames) for arm in arms)


def results(frames: Frames) -> Results:
    """What `run.json` stores: the summaries of the arms, and the figures of each block."""
    blocks = measure_blocks(frames)
    return Results(
        rules=RULES,
        arms=summarise(blocks, frames),
        blocks=tuple(StoredBlock(arm=arm, repeat=n, figures=figures) for (arm, n), figures in blocks.items()),
    )


def results_of(directory: RunDirectory) -> Results:
    """The results that a closed run stored, if its tables still have the hashes stored with them; otherwise derived
    again. A run that was resumed and killed holds newer blocks than its results do. Summaries of arms that were made
    by other rules for intervals and marks are made anew, of the figures that are stored."""
    found = _stored_results(directory)
    if found is None:
        return results(directory.frames())
    if found.rules == RULES:
        return found
    return replace(found, rules=RULES, arms=summarise(found.by_block(), directory.frames()))


def _stored_results(directory: RunDirectory) -> Results | None:
    """None where the tables are not those that they were derived from."""
    stored, files = directory.record.results, directory.record.files
    if stored is None or not files or directory.record.status == "running":
        return None
    tables = {directory.path / name: digest for name, digest in files.items() if name.endswith(".parquet")}
    is_same = all(path.is_file() and sha256_file(path) == digest for path, digest in tables.items())
    return stored if is_same else None


def block_values(directory: RunDirectory) -> dict[Block, Figures]:
    """The figures of every block that did not fail, by arm and repeat. ValueError for a stored block that lacks one."""
    found = _stored_results(directory) or results(directory.frames())
    blocks = {block: figures.values for block, figures in found.by_block().items()}
    for (arm, repeat), figures in blocks.items():
        # Percentiles of nothing are left out: a block without rounds has no median round.
        needed = {own.block for own in OWN if own.block and not own.block.endswith(".p50")}
        if missing := sorted(needed - figures.keys()):
            where = f"{directory.path}: results: {arm}, repeat {repeat + 1}"
            raise ValueError(f"{where}: {', '.join(missing)} is missing; {DERIVE_AGAIN}")
    return blocks


def measure_blocks(frames: Frames) -> dict[Block, BlockFigures]:
    """`block_metrics` of every block that did not fail."""
    by_block = {name: _split(getattr(frames, name)) for name in TABLES}
    blocks = {}
    for block in {**by_block["requests"], **by_block["counters"]}:  # of a file of totals there are counters alone
        requests = by_block["requests"].get(block, frames.requests.iloc[:0])
        if (requests["request_id"] == FAILED_ARM_REQUEST_ID).any():
            continue
        steps = by_block["steps"].get(block, frames.steps.iloc[:0])
        phases = by_block["phases"].get(block, frames.phases.iloc[:0])
        counters = by_block["counters"].get(block, frames.counters.iloc[:0])
        blocks[block] = block_metrics(
            requests, steps, phases, dict(zip(counters["name"], counters["value"], strict=True))
        )
    return blocks


def _split(frame: pd.DataFrame) -> dict[Block, pd.DataFrame]:
    blocks = frame[["arm", "repeat"]].drop_duplicates().itertuples(index=False)
    groups = frame.groupby(["arm", "repeat"], sort=False)
    return {(arm, int(repeat)): groups.get_group((arm, repeat)) for arm, repeat in blocks}


def _arms(frames: Frames) -> list[ArmRecord]:
    """The run's arms, each with its strategy; without a record, one arm per label in the tables."""
    described = frames.arms or [ArmRecord(label=label) for label in frames.requests["arm"].drop_duplicates()]
    return [replace(arm, strategy=_strategy(arm)) for arm in described]


def _strategy(arm: ArmRecord) -> str:
    """The arm's strategy; a label has the form `strategy` or `strategy:key=value,...` unless the user named it."""
    return (arm.strategy or arm.label).split(":")[0].replace("_", "-")


def _summarise_arm(
    arm: ArmRecord, baseline: ArmRecord | None, blocks: Mapping[Block, Figures], frames: Frames
) -> ArmSummary:
    label = arm.label
    mine = [figures for (name, _), figures in blocks.items() if name == label]
    requests = frames.requests[frames.requests["arm"] == label]
    whole_failures = requests[requests["request_id"] == FAILED_ARM_REQUEST_ID]
    requests = requests[requests["request_id"] != FAILED_ARM_REQUEST_ID]
    errors = [*whole_failures["error"], *requests.loc[requests["error"] != "", "error"]]
    is_compared = mine and baseline is not None and baseline.label != label
    summary = ArmSummary(
        label=label,
        strategy=arm.strategy,
        status=_status(len(mine), len(whole_failures)),
        error=errors[0] if errors else "",
        num_repeats=len(mine),
        num_requests=len(requests),
        num_failed_requests=int(requests["finish_reason"].isin(["error", "abort"]).sum()),
        spreads=_spreads(mine),
        acceptance=_pooled_acceptance(label, requests, frames) if mine else None,
        speedup=_speedup(arm, baseline, blocks, frames.requests) if is_compared and baseline else None,
        marks=(*arm.notes, *_driven_otherwise(arm, baseline), *_interrupted(label, whole_failures, frames)),
    )
    steps = frames.steps[frames.steps["arm"] == label]
    seen = [frames.seen[block] for block in blocks if block[0] == label and block in frames.seen]
    speculated = summary.speedup if baseline is not None and _speculates_beside(arm, baseline) else None
    doubted = doubts(arm, speculated, summary.acceptance, requests, steps, seen) if mine else ()
    return replace(summary, marks=(*summary.marks, *_marks(summary, len(whole_failures), len(arm.notes)), *doubted))


def _speedup(
    arm: ArmRecord, baseline: ArmRecord, blocks: Mapping[Block, Figures], requests: pd.DataFrame
) -> Speedup | None:
    found = speedup(arm.label, baseline.label, blocks, requests)
    return over_requests(arm.label, found, requests) if found and arm.imported else found


def _driven_otherwise(arm: ArmRecord, baseline: ArmRecord | None) -> list[str]:
    """A note if the two arms of the speed-up were timed in different places."""
    if baseline is None or arm.config.driven == baseline.config.driven:
        return []
    return [f"driven {arm.config.driven}, {baseline.label} {baseline.config.driven}: the speed-up is not a verdict"]


def _speculates_beside(arm: ArmRecord, baseline: ArmRecord) -> bool:
    """Whether speculation is what the two differ in: not an engine, and not the switches of two plain arms."""
    return arm.strategy != baseline.strategy and arm.config.engine == baseline.config.engine


def _interrupted(label: str, whole_failures: pd.DataFrame, frames: Frames) -> list[str]:
    """Notes on what is left of blocks that neither ended nor failed."""
    mine = [b for b in frames.partial if b.arm == label and b.repeat not in set(whole_failures["repeat"])]
    return [f"interrupted: {len(block.requests)} of {block.num_requests} requests" for block in mine]


def _status(num_measured: int, num_failed: int) -> str:
    if not num_failed:
        return "ok" if num_measured else "pending"
    return "partial" if num_measured else "failed"


def _spreads(blocks: Sequence[Figures]) -> dict[str, Spread]:
    values: dict[str, list[float]] = {}
    for figures in blocks:
        for name, value in figures.items():
            if value is not None:
                values.setdefault(name, []).append(float(value))
    return {name: spread(found) for name, found in values.items()}


def _numbers(value: Acceptance | _Parts) -> Figures:
    """The scalar figures of `value` and of its parts, by dotted name."""
    found: dict[str, float | None] = {}
    for one in fields(value):
        part = getattr(value, one.name)
        if isinstance(part, _Parts):
            found |= under(one.name, _numbers(part))
        elif part is None or isinstance(part, (int, float)):
            found[one.name] = part
    return found


def _pooled_acceptance(label: str, requests: pd.DataFrame, frames: Frames) -> Acceptance:
    prompts = requests[["repeat", "request_id", "prompt_id"]]
    mine = frames.steps[frames.steps["arm"] == label].merge(prompts, on=["repeat", "request_id"], how="inner")
    counted = frames.counters[frames.counters["arm"] == label].groupby("name")["value"].sum()
    return with_counted(acceptance_metrics(requests, mine, cluster="prompt_id"), counted.to_dict())


def _marks(summary: ArmSummary, num_failed_blocks: int, num_notes: int) -> Iterator[str]:
    if summary.status == "failed":
        yield f"failed: {summary.error}"
    elif num_failed_blocks:
        yield f"{num_failed_blocks} of {num_failed_blocks + summary.num_repeats} repeats failed"
    if summary.status == "pending" and len(summary.marks) == num_notes:
        yield "not run"
    if summary.num_failed_requests:
        yield f"{summary.num_failed_requests} of {summary.num_requests} requests failed"
    residual = summary.median("accounting.residual")
    if residual is not None and abs(residual) > RESIDUAL_LIMIT:
        yield f"residual {residual:+.1%}"
    yield from counter_marks(summary.spreads)
