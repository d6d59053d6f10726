"""Every figure of every table: `block_metrics` for one arm and repeat, `summarise` for the arms of a run.

Definitions stand in the docstrings of `latency.py`, `acceptance.py`, `accounting.py` and `speedup.py`, which
this joins. The figures are functions of the raw tables alone, so that a stored run can be reported again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specbench.harness.metrics.acceptance import acceptance_metrics
from specbench.harness.metrics.accounting import (
    RESIDUAL_LIMIT,
    accounting_identity,
    phase_metrics,
    round_metrics,
    step_table,
)
from specbench.harness.metrics.latency import latency_metrics, throughput_metrics
from specbench.harness.metrics.speedup import Speedup, speedup
from specbench.harness.registry import BASELINE as BASELINE
from specbench.harness.stats.spread import Spread, spread
from specbench.harness.store.schema import FAILED_ARM_REQUEST_ID, Frames


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSummary:
    """One row of the comparison table.

    spreads: every number of `block_metrics`, by dotted name (`tpot_ms.mean`), over the measured repeats.
    acceptance: `acceptance_metrics` over all repeats pooled, interval over prompts. status: ok, partial (some repeats
    failed), failed, pending. marks: what a reader of the row must know.
    """

    label: str
    strategy: str
    status: str
    error: str
    num_repeats: int
    num_requests: int
    num_failed_requests: int
    spreads: dict[str, Spread]
    acceptance: dict[str, Any]
    speedup: Speedup | None
    marks: tuple[str, ...]

    def median(self, name: str) -> float | None:
        """Median over repeats of a figure, None if no repeat has it."""
        found = self.spreads.get(name)
        return None if found is None else found.median

    def group(self, prefix: str) -> dict[str, float]:
        """Medians of the figures below `prefix.`, in stored order: `group("phases_ms.plain")`."""
        start = prefix + "."
        return {k.removeprefix(start): v.median for k, v in self.spreads.items() if k.startswith(start)}


def block_metrics(requests: pd.DataFrame, steps: pd.DataFrame, phases: pd.DataFrame) -> dict[str, Any]:
    """All figures of one block (one arm, one repeat) from its raw rows; None where a figure has no data."""
    table = step_table(steps)
    latency = latency_metrics(requests, steps)
    failed = requests["finish_reason"].isin(["error", "abort"])
    return {
        "num_requests": len(requests),
        "num_failed_requests": int(failed.sum()),
        "num_output_tokens": int(requests["num_output_tokens"].sum()),
        "num_preemptions": _known_sum(requests["num_preemptions"]),
        **throughput_metrics(requests, steps),
        **latency,
        **round_metrics(table),
        "phases_ms": phase_metrics(phases, table),
        "accounting": accounting_identity(requests, steps, phases, table, latency["tpot_ms"]["weighted"]),
        "acceptance": acceptance_metrics(requests, steps),
    }


def _known_sum(values: pd.Series) -> int | None:
    """None where the engine does not tell."""
    return None if values.isna().any() else int(values.sum())


def summarise(frames: Frames) -> list[ArmSummary]:
    """One summary an arm, in the order of the run; arms that failed or never ran are among them."""
    blocks = measure_blocks(frames)
    arms = _arms(frames)
    baseline = next((arm["label"] for arm in arms if arm["strategy"] == BASELINE), None)
    return [_summarise_arm(arm, baseline, blocks, frames) for arm in arms]


def results(frames: Frames) -> dict[str, Any]:
    """What `run.json` stores: `arms`, the summaries, and `blocks`, the figures of each block."""
    blocks = [{"arm": arm, "repeat": repeat, **metrics} for (arm, repeat), metrics in measure_blocks(frames).items()]
    return {"arms": summarise(frames), "blocks": blocks}


def measure_blocks(frames: Frames) -> dict[tuple[str, int], dict[str, Any]]:
    """`block_metrics` of every block that did not fail."""
    by_block = {name: _split(getattr(frames, name)) for name in ("requests", "steps", "phases")}
    blocks = {}
    for block, requests in by_block["requests"].items():
        if (requests["request_id"] == FAILED_ARM_REQUEST_ID).any():
            continue
        steps = by_block["steps"].get(block, frames.steps.iloc[:0])
        phases = by_block["phases"].get(block, frames.phases.iloc[:0])
        blocks[block] = block_metrics(requests, steps, phases)
    return blocks


def _split(frame: pd.DataFrame) -> dict[tuple[str, int], pd.DataFrame]:
    blocks = frame[["arm", "repeat"]].drop_duplicates().itertuples(index=False)
    groups = frame.groupby(["arm", "repeat"], sort=False)
    return {(arm, int(repeat)): groups.get_group((arm, repeat)) for arm, repeat in blocks}


def _arms(frames: Frames) -> list[dict[str, Any]]:
    """The run's arms with a strategy each; without a manifest, the labels in the tables."""
    described = frames.arms or [{"label": label} for label in frames.requests["arm"].drop_duplicates()]
    return [{"notes": [], **arm, "strategy": _strategy(arm)} for arm in described]


def _strategy(arm: Mapping[str, Any]) -> str:
    """The arm's strategy; a label has the form `strategy` or `strategy:key=value,...` unless the user named it."""
    strategy = arm.get("strategy") or (arm.get("config") or {}).get("strategy")
    name = strategy if isinstance(strategy, str) else str(arm["label"])
    return name.split(":")[0].replace("_", "-")


def _summarise_arm(
    arm: Mapping[str, Any],
    baseline: str | None,
    blocks: Mapping[tuple[str, int], Mapping[str, Any]],
    frames: Frames,
) -> ArmSummary:
    label = arm["label"]
    mine = {repeat: metrics for (name, repeat), metrics in blocks.items() if name == label}
    requests = frames.requests[frames.requests["arm"] == label]
    whole_failures = requests[requests["request_id"] == FAILED_ARM_REQUEST_ID]
    requests = requests[requests["request_id"] != FAILED_ARM_REQUEST_ID]
    errors = [*whole_failures["error"], *requests.loc[requests["error"] != "", "error"]]
    spreads = _spreads(list(mine.values()))
    summary = {
        "label": label,
        "strategy": arm["strategy"],
        "status": _status(len(mine), len(whole_failures)),
        "error": errors[0] if errors else "",
        "num_repeats": len(mine),
        "num_requests": len(requests),
        "num_failed_requests": int(requests["finish_reason"].isin(["error", "abort"]).sum()),
        "spreads": spreads,
        "acceptance": _pooled_acceptance(label, requests, frames.steps) if mine else {},
    }
    compared = None
    if mine and baseline is not None and baseline != label:
        compared = speedup(label, baseline, blocks, frames.requests)
    marks = _marks(arm, summary, len(whole_failures), _interrupted(label, whole_failures, frames))
    return ArmSummary(**summary, speedup=compared, marks=marks)


def _interrupted(label: str, whole_failures: pd.DataFrame, frames: Frames) -> list[str]:
    """What is left of blocks that neither ended nor failed."""
    mine = [b for b in frames.partial if b.arm == label and b.repeat not in set(whole_failures["repeat"])]
    return [f"interrupted: {len(block.requests)} of {block.num_requests} requests" for block in mine]


def _status(num_measured: int, num_failed: int) -> str:
    if not num_failed:
        return "ok" if num_measured else "pending"
    return "partial" if num_measured else "failed"


def _spreads(blocks: list[Mapping[str, Any]]) -> dict[str, Spread]:
    values: dict[str, list[float]] = {}
    for metrics in blocks:
        for name, value in leaves(metrics):
            values.setdefault(name, []).append(value)
    return {name: spread(found) for name, found in values.items()}


def leaves(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """The numbers of nested figures, by dotted name."""
    found: list[tuple[str, float]] = []
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            found += leaves(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
            found.append((f"{prefix}{key}", float(value)))
    return found


def _pooled_acceptance(label: str, requests: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Any]:
    prompts = requests[["repeat", "request_id", "prompt_id"]]
    mine = steps[steps["arm"] == label].merge(prompts, on=["repeat", "request_id"], how="inner")
    return acceptance_metrics(requests, mine, cluster="prompt_id")


def _marks(
    arm: Mapping[str, Any], summary: Mapping[str, Any], num_failed_blocks: int, interrupted: list[str]
) -> tuple[str, ...]:
    marks = [*(str(note) for note in arm["notes"]), *interrupted]
    if summary["status"] == "failed":
        marks.append(f"failed: {summary['error']}")
    elif num_failed_blocks:
        marks.append(f"{num_failed_blocks} of {num_failed_blocks + summary['num_repeats']} repeats failed")
    if summary["status"] == "pending" and not interrupted:
        marks.append("not run")
    if summary["num_failed_requests"]:
        marks.append(f"{summary['num_failed_requests']} of {summary['num_requests']} requests failed")
    residual = summary["spreads"].get("accounting.residual")
    if residual is not None and abs(residual.median) > RESIDUAL_LIMIT:
        marks.append(f"residual {residual.median:+.1%}")
    return tuple(marks)
