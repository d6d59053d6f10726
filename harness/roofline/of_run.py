"""A stored run against the ideal: how close each arm came to the machine's limits, and what speculation could gain.

All figures are of decode rounds, repeats pooled: batch, context, tokens a request and duration of the mean round.
Both speed-ups are of such rounds, each arm at the batch and context at which it ran, so that

    measured speed-up / ideal speed-up = efficiency of the arm / efficiency of no-spec
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from specbench.harness.metrics.accounting import step_table
from specbench.harness.registry import BASELINE
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.roofline_record import Forwards, IdealArm, Machine, MeanRound
from specbench.harness.store.rows import EXPERTS_READ
from specbench.harness.store.run_record import RunRecord
from specbench.harness.store.schema import Frames

from .ideal import LIMITS, PHASES, SAMPLING_BYTES, Round, can_sum, free_rows, round_parts_s

OTHER = "other"
PLAIN, INSTRUMENTED = "plain", "instrumented"


def ideal_arms_of(record: RunRecord, frames: Frames, machine: Machine) -> list[IdealArm]:
    """Every arm of a run. If the ideal of an arm is unknown, it has none and says why."""
    arms = [_arm(entry, record, frames, machine) for entry in record.arms]
    base = next((arm for arm in arms if arm.strategy == BASELINE), None)
    return [_with_speedups(arm, base) for arm in arms]


def mean_round(frames: Frames, label: str, is_unpadded: bool) -> MeanRound | None:
    """The mean round of an arm's decode rounds; None if there are none."""
    steps = frames.steps[frames.steps["arm"] == label]
    tables = {repeat: step_table(block) for repeat, block in steps.groupby("repeat")}
    rounds = pd.concat([t[t["kind"] == "decode"] for t in tables.values()]) if tables else pd.DataFrame()
    duration_ms = float(rounds["round_ns"].mean() / 1e6) if len(rounds) else 0.0
    if duration_ms <= 0:
        return None
    rows = _with_context(steps, frames.requests[frames.requests["arm"] == label])
    rows = rows[rows["kind"] == "decode"]
    accepted = rows["num_accepted"]
    phases_ms, source = _phases_ms(frames.phases[frames.phases["arm"] == label], tables, duration_ms)
    return MeanRound(
        batch=float(rounds["batch_size"].mean()),
        context=float(rows["context"].mean()),
        rates=tuple(float((accepted >= i).mean()) for i in range(1, int(rows["draft_depth"].max()) + 1)),
        tokens=float(rows["num_emitted"].mean()),
        first_rows=_first_rows(rounds, is_unpadded),
        duration_ms=duration_ms,
        phases_ms=phases_ms,
        source=source,
        experts=_experts(frames.counters[frames.counters["arm"] == label]),
    )


def _with_context(steps: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """Rows with `context`: the request's cached tokens before the step; the pending token is not among them."""
    keys = ["repeat", "request_id"]
    rows = steps.sort_values("step").merge(requests[[*keys, "num_prompt_tokens"]], on=keys, how="inner")
    emitted_before = rows.groupby(keys)["num_emitted"].cumsum() - rows["num_emitted"]
    return rows.assign(context=rows["num_prompt_tokens"] + emitted_before - 1)


def _first_rows(rounds: pd.DataFrame, is_unpadded: bool) -> float:
    """From the step log; padding requests of a graph, which the padded pass also runs, are left out."""
    num_requests = rounds["batch_size"]
    if not is_unpadded:
        num_requests = num_requests * rounds["num_padded_rows"] / rounds["num_rows"]
    total = float(num_requests.sum())
    return float(rounds["num_draft_rows"].sum()) / total if total else 0.0


def _phases_ms(
    phases: pd.DataFrame, tables: Mapping[Any, pd.DataFrame], duration_ms: float
) -> tuple[dict[str, float], str]:
    """The phase times of the mean round: measured in the rounds themselves, else from the shares of an instrumented
    capture."""
    is_instrumented = phases["instrumented"].astype(bool)
    decode = [(r, n) for r, table in tables.items() for n in table.index[table["kind"] == "decode"]]
    at = pd.MultiIndex.from_frame(phases[["repeat", "step"]])
    kinds = {PLAIN: phases[~is_instrumented & at.isin(decode)], INSTRUMENTED: phases[is_instrumented]}
    for source, chosen in kinds.items():
        if chosen.empty:
            continue
        num_rounds = len(chosen[["repeat", "step"]].drop_duplicates())
        found = (chosen.groupby("phase")["duration_ns"].sum() / num_rounds / 1e6).to_dict()
        scale = duration_ms / sum(found.values()) if source == INSTRUMENTED else 1.0
        named = {name: float(found.get(name, 0.0)) * scale for name in PHASES}
        return {**named, OTHER: duration_ms - sum(named.values())}, source
    return {}, ""


def _experts(counters: pd.DataFrame) -> float | None:
    """Of all repeats of an arm."""
    found = counters.loc[counters["name"] == EXPERTS_READ, "value"]
    return float(found.mean()) if len(found) else None


def _arm(entry: ArmRecord, record: RunRecord, frames: Frames, machine: Machine) -> IdealArm:
    measured = mean_round(frames, entry.label, is_unpadded=entry.config.drafter == "unpadded")
    arm = IdealArm(label=entry.label, strategy=entry.strategy, measured=measured)
    if measured is None:
        return replace(arm, unknown="no decode round was measured")
    if entry.config.has_auto_k:
        return replace(arm, unknown="its number of drafts changes from round to round")
    forwards = record.forwards.get(entry.label)
    if forwards is None:
        why = "run.json does not record its passes: another engine, a drafter with experts, or an older version"
        return replace(arm, unknown=why)
    if forwards.target.experts and measured.experts is None:
        return replace(arm, unknown="the number of experts that its rounds read was not counted")
    if forwards.dtype != machine.dtype:
        return replace(arm, unknown=f"the run is in {forwards.dtype}, the machine's limits are of {machine.dtype}")
    if not can_sum(machine, num_ranks := forwards.target.num_ranks):
        return replace(arm, unknown=f"how long {num_ranks} of {machine.device} take for an all-reduce is not known")
    is_greedy = record.sampling is None or not record.sampling.temperature
    parts_ms = _parts_ms(forwards, measured, machine, is_greedy)
    by_limit = {limit: sum(parts.get(limit, 0.0) for parts in parts_ms.values()) for limit in LIMITS}
    return replace(
        arm,
        ideal_ms={phase: float(sum(parts.values())) for phase, parts in parts_ms.items()},
        limits_ms={limit: ms for limit, ms in by_limit.items() if ms},
        free_rows=None if forwards.target.experts else free_rows(machine, forwards.target),
        expert_bytes=forwards.target.expert_bytes(measured.experts or 0) or None,
    )


def _parts_ms(
    forwards: Forwards, measured: MeanRound, machine: Machine, is_greedy: bool
) -> dict[str, dict[str, float]]:
    """The times of the ideal round, by phase and limit."""
    r = Round.tree(
        measured.batch,
        measured.context,
        num_nodes=forwards.num_drafts + 1,
        depth=forwards.depth,
        topk=forwards.topk,
        first_rows=measured.first_rows if forwards.drafter else None,
    )
    # Greedy: the logits are written and read once, as they are.
    logit_bytes = 2.0 * forwards.target.number_bytes if is_greedy else SAMPLING_BYTES
    r = replace(r, experts=measured.experts or 0)
    found = round_parts_s(machine, forwards.target, forwards.drafter, r, logit_bytes)
    return {phase: {limit: s * 1e3 for limit, s in parts.items()} for phase, parts in found.items()}


def _with_speedups(arm: IdealArm, base: IdealArm | None) -> IdealArm:
    """`arm` against no-spec (which may be the same arm); unchanged if either has no rounds."""
    if base is None or arm.measured is None or base.measured is None or not base.measured.tokens:
        return arm
    tokens = arm.measured.tokens / base.measured.tokens
    ideal = None
    if arm.ideal_round_ms and base.ideal_round_ms:
        ideal = tokens * base.ideal_round_ms / arm.ideal_round_ms
    measured = tokens * base.measured.duration_ms / arm.measured.duration_ms
    return replace(arm, ideal_speedup=ideal, measured_speedup=measured)
