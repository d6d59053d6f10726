"""Every figure of every table: `block_metrics` for one arm and repeat, `summarise` for the arms of a run.

Definitions are in the docstrings of `latency.py`, `acceptance.py`, `accounting.py` and `speedup.py`, which this module
combines. The figures depend on the raw tables alone, so a stored run can be reported again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

import numpy as np
import pandas as pd

from specbench.harness.metrics.acceptance import acceptance_metrics
from specbench.harness.metrics.accounting import (
    RESIDUAL_LIMIT,
    accounting_identity,
    phase_metrics,
    phase_rounds,
    round_metrics,
    step_table,
)
from specbench.harness.metrics.by_category import category_figures
from specbench.harness.metrics.counted_acceptance import with_counted
from specbench.harness.metrics.counters import counter_marks, without_void
from specbench.harness.metrics.doubts import changed_output, doubts
from specbench.harness.metrics.grouping import with_prompts
from specbench.harness.metrics.imported_speedup import over_requests
from specbench.harness.metrics.latency import latency_metrics, throughput_metrics
from specbench.harness.metrics.over_repeats import spreads_of
from specbench.harness.metrics.registered import foreign_figures
from specbench.harness.metrics.speedup import baseline_of, speedup
from specbench.harness.stats.spread import under
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.results import (
    Acceptance,
    AcceptanceInterval,
    ArmSummary,
    BlockFigures,
    Figures,
    PeerAcceptance,
    SglangAcceptance,
    Speedup,
    VllmAcceptance,
)
from specbench.harness.store.schema import FAILED_ARM_REQUEST_ID, TABLES, Frames

Block = tuple[str, int]
_UNUSED = ["arm", "error", "output_token_ids", "output_sha256", "output_text", "syncs"]
"""Columns that no figure needs: every selection of rows would copy them."""
_Parts = AcceptanceInterval | PeerAcceptance | VllmAcceptance | SglangAcceptance


def block_metrics(
    requests: pd.DataFrame,
    steps: pd.DataFrame,
    phases: pd.DataFrame,
    counters: Mapping[str, float] | None = None,
    logprobs: pd.DataFrame | None = None,
) -> BlockFigures:
    """All figures of one block (one arm, one repeat) from its raw rows; None if a figure has no data."""
    foreign = {own.block: own.of_block(requests, steps, phases) for own in foreign_figures() if own.of_block}
    requests, steps = _used(requests), _used(steps)
    table = step_table(steps)
    latency = latency_metrics(requests, steps)
    failed = requests["finish_reason"].isin(["error", "abort"])
    rounds = phase_rounds(phases, table)
    accounting, source = accounting_identity(requests, steps, rounds, table, latency["tpot_ms.weighted"])
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
            **under("phases_ms", phase_metrics(rounds)),
            **under("accounting", accounting),
            **under("acceptance", _numbers(acceptance)),
            **under("counters", counters or {}),
            **under("logprobs", {} if logprobs is None else _mean_logprobs(logprobs)),
            **foreign,
        },
        acceptance=acceptance,
        phases=source,
    )


def _used(frame: pd.DataFrame) -> pd.DataFrame:
    """Without `_UNUSED`, by position: pandas takes a millisecond to drop columns by name."""
    return frame.iloc[:, [place for place, name in enumerate(frame.columns) if name not in _UNUSED]]


def _mean_logprobs(rows: pd.DataFrame) -> Figures:
    """output, prompt: mean log-probability of a token, from the target's unmodified logits; over the reported
    tokens, None without any."""
    parts = {str(part): np.concatenate(list(values)) for part, values in rows.groupby("part")["token_logprobs"]}
    return {part: float(values.mean()) if len(values) else None for part, values in parts.items()}


def _known_sum(values: pd.Series) -> int | None:
    """None if the engine does not report it."""
    return None if values.isna().any() else int(values.sum())


def summarise(blocks: Mapping[Block, BlockFigures], frames: Frames) -> tuple[ArmSummary, ...]:
    """One summary per arm, in the order of the run, including arms that failed or never ran. `blocks`: the figures of
    their blocks (`measure_blocks`)."""
    values = {block: figures.values for block, figures in blocks.items()}
    arms = _arms(frames)
    return tuple(_summarise_arm(arm, baseline_of(arm, arms), values, frames) for arm in arms)


def measure_blocks(frames: Frames) -> dict[Block, BlockFigures]:
    """`block_metrics` of every block that did not fail."""
    by_block = {name: _split(getattr(frames, name)) for name in TABLES}
    blocks = {}
    for block in {**by_block["requests"], **by_block["counters"]}:  # a file of totals has only counters
        requests = by_block["requests"].get(block, frames.requests.iloc[:0])
        if (requests["request_id"] == FAILED_ARM_REQUEST_ID).any():
            continue
        steps = by_block["steps"].get(block, frames.steps.iloc[:0])
        phases = by_block["phases"].get(block, frames.phases.iloc[:0])
        counters = by_block["counters"].get(block, frames.counters.iloc[:0])
        blocks[block] = block_metrics(
            requests,
            steps,
            phases,
            dict(zip(counters["name"], counters["value"], strict=True)),
            by_block["logprobs"].get(block),
        )
    return blocks


def _split(frame: pd.DataFrame) -> dict[Block, pd.DataFrame]:
    """The labels in the order of their first rows."""
    return {(arm, int(repeat)): rows for (arm, repeat), rows in frame.groupby(["arm", "repeat"], sort=False)}


def _arms(frames: Frames) -> list[ArmRecord]:
    """The run's arms, each with its strategy; without a record, one arm per label in the tables."""
    described = frames.arms or [ArmRecord(label=label) for label in frames.requests["arm"].drop_duplicates()]
    return [replace(arm, strategy=strategy_of(arm)) for arm in described]


def strategy_of(arm: ArmRecord) -> str:
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
    steps = frames.steps[frames.steps["arm"] == label]
    is_compared = mine and baseline is not None and baseline.label != label
    interrupted = _interrupted(label, whole_failures, frames)
    summary = ArmSummary(
        label=label,
        strategy=arm.strategy,
        status=_status(len(mine), len(whole_failures)),
        error=errors[0] if errors else "",
        num_repeats=len(mine),
        num_requests=len(requests),
        num_failed_requests=int(requests["finish_reason"].isin(["error", "abort"]).sum()),
        spreads=spreads_of(mine),
        acceptance=_pooled_acceptance(label, requests, steps, frames) if mine else None,
        speedup=_speedup(arm, baseline, blocks, frames.requests) if is_compared and baseline else None,
        categories=category_figures(label, baseline.label if is_compared and baseline else None, blocks, frames),
        marks=(*arm.notes, *_driven_otherwise(arm, baseline), *interrupted),
    )
    of_arm = [block for block in blocks if block[0] == label]
    seen = [frames.seen[block] for block in of_arm if block in frames.seen]
    speculated = summary.speedup if baseline is not None and _speculates_beside(arm, baseline) else None
    doubted = doubts(arm, speculated, summary.acceptance, requests, steps, seen, len(of_arm)) if mine else ()
    changed = changed_output(requests) if mine and frames.temperature == 0 else ()
    own = _marks(summary, len(whole_failures), bool(interrupted))
    return replace(summary, marks=(*summary.marks, *own, *doubted, *changed))


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
    """Whether the two differ in speculation, and not in the engine or in the switches of two plain arms."""
    return arm.strategy != baseline.strategy and arm.config.engine == baseline.config.engine


def _interrupted(label: str, whole_failures: pd.DataFrame, frames: Frames) -> list[str]:
    """Notes on the remains of blocks that neither ended nor failed."""
    mine = [b for b in frames.partial if b.arm == label and b.repeat not in set(whole_failures["repeat"])]
    return [f"interrupted after {len(b.requests)} of {b.num_requests} requests of repeat {b.repeat + 1}" for b in mine]


def _status(num_measured: int, num_failed: int) -> str:
    if not num_failed:
        return "ok" if num_measured else "pending"
    return "partial" if num_measured else "failed"


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


def _pooled_acceptance(label: str, requests: pd.DataFrame, steps: pd.DataFrame, frames: Frames) -> Acceptance:
    counted = frames.counters[frames.counters["arm"] == label].groupby("name")["value"].sum()
    pooled = acceptance_metrics(requests, with_prompts(steps, requests), cluster="prompt_id")
    return with_counted(pooled, counted.to_dict())


def _marks(summary: ArmSummary, num_failed_blocks: int, was_begun: bool) -> Iterator[str]:
    if summary.status == "failed":
        yield f"failed: {summary.error}"
    elif num_failed_blocks:
        yield f"{num_failed_blocks} of {num_failed_blocks + summary.num_repeats} repeats failed"
    if summary.status == "pending" and not was_begun:
        yield "not run"
    if summary.num_failed_requests:
        yield f"{summary.num_failed_requests} of {summary.num_requests} requests failed"
    residual = summary.median("accounting.residual")
    if residual is not None and abs(residual) > RESIDUAL_LIMIT:
        yield f"residual {residual:+.1%}"
    yield from counter_marks(summary.spreads)
