"""Prepares a run's requests for resampling by `crossover.py`: figures of an arm and its baseline by block and prompt.

Shapes: B blocks, P prompts, O runs of a prompt in a block: a prompt's n-th run of an arm pairs with its n-th of the
baseline, as in `speedup.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from specbench.harness.metrics.latency import measured, throughput_metrics, tpot_by_request_ms
from specbench.harness.metrics.metrics import strategy_of
from specbench.harness.registry import BASELINE
from specbench.harness.stats.crossover import Array, PairedBlocks
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.roofline_record import IdealArm


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LoadPoint:
    """A run at one load. `arms`: as the run record describes them; `requests`: its raw rows. `ideal`: figures of the
    roofline by arm label, empty if not requested. `doubts`: marks by arm label (`metrics.doubts`)."""

    load: int
    run_id: str
    arms: Sequence[ArmRecord]
    requests: pd.DataFrame
    ideal: Mapping[str, IdealArm] = field(default_factory=dict)
    doubts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ArmBlocks:
    """The measurements of an arm in a run. log_tpot_BPO: nan without a TPOT. tps_B: nan in missing blocks. tokens_BP,
    service_ns_BP: of all requests that produced tokens. tpot_ms_B: mean over the block's requests."""

    log_tpot_BPO: Array
    tps_B: Array
    tpot_ms_B: Array
    tokens_BP: Array
    service_ns_BP: Array

    @property
    def num_blocks(self) -> int:
        return int(np.isfinite(self.tps_B).sum())


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PointBlocks:
    """A point with the blocks that did not fail, in order, and its arms with at least one block, by label."""

    point: LoadPoint
    num_blocks: int
    arms: Mapping[str, ArmBlocks]

    def baseline(self, label: str) -> str | None:
        """The first measured arm without speculation: of the arm's own engine, else of all, as in `speedup.py`."""
        plain = [arm for arm in self.point.arms if strategy_of(arm) == BASELINE]
        engine = next((arm.config.engine for arm in self.point.arms if arm.label == label), None)
        own = [arm for arm in plain if arm.config.engine == engine] or plain
        return next((arm.label for arm in own if arm.label in self.arms), None)


def point_blocks(point: LoadPoint, prompts: Sequence[str]) -> PointBlocks:
    """The point's arms as arrays; `prompts`: ids, in the order of the arrays."""
    rows = measured(point.requests).sort_values("request_id")
    rows = rows.assign(
        occurrence=rows.groupby(["arm", "repeat", "prompt_id"]).cumcount(),
        service_ns=rows["t_last_ns"] - rows["t_submit_ns"],
    )
    blocks = sorted(set(rows["repeat"]))
    num_runs = int(rows["occurrence"].max()) + 1 if len(rows) else 1
    arms = {str(arm): _arm(own, blocks, prompts, num_runs) for arm, own in rows.groupby("arm", sort=False)}
    return PointBlocks(point=point, num_blocks=len(blocks), arms=arms)


def paired_blocks(arm: ArmBlocks, baseline: ArmBlocks, load: int) -> PairedBlocks | None:
    """An arm and its baseline of the same run, at `load`; None if no block has both."""
    log_tps_B = np.log(arm.tps_B / baseline.tps_B)
    if not np.isfinite(log_tps_B).any():
        return None
    gained_BPO = baseline.log_tpot_BPO - arm.log_tpot_BPO
    known_BPO = np.isfinite(gained_BPO)
    with np.errstate(invalid="ignore"):
        log_tpot_BP = np.where(known_BPO, gained_BPO, 0.0).sum(axis=2) / known_BPO.sum(axis=2)
    return PairedBlocks(
        load=load,
        log_tpot_BP=log_tpot_BP,
        log_tps_B=log_tps_B,
        tokens_BP=(arm.tokens_BP, baseline.tokens_BP),
        service_ns_BP=(arm.service_ns_BP, baseline.service_ns_BP),
    )


def _arm(rows: pd.DataFrame, blocks: Sequence[int], prompts: Sequence[str], num_runs: int) -> ArmBlocks:
    tpot_ms = tpot_by_request_ms(rows)
    tpot_ms = tpot_ms[tpot_ms > 0]
    shape = (len(blocks), len(prompts), num_runs)
    block_n, prompt_n = (
        pd.Index(known).get_indexer(pd.Index(rows[name]))
        for known, name in ((blocks, "repeat"), (prompts, "prompt_id"))
    )
    at = pd.DataFrame({"b": block_n, "p": prompt_n, "o": rows["occurrence"]}, index=rows.index)
    log_tpot_BPO = np.full(shape, np.nan)
    own = at.loc[tpot_ms.index]
    log_tpot_BPO[own["b"], own["p"], own["o"]] = np.log(tpot_ms)
    alive = rows[rows["num_output_tokens"] >= 1]
    own = at.loc[alive.index]
    tokens_BP, service_ns_BP = np.zeros(shape[:2]), np.zeros(shape[:2])
    np.add.at(tokens_BP, (own["b"], own["p"]), alive["num_output_tokens"])
    np.add.at(service_ns_BP, (own["b"], own["p"]), alive["service_ns"])
    by_block = {int(str(n)): block for n, block in rows.groupby("repeat")}
    return ArmBlocks(
        log_tpot_BPO=log_tpot_BPO,
        tps_B=np.array([_tps(by_block[n]) if n in by_block else np.nan for n in blocks]),
        tpot_ms_B=tpot_ms.groupby(rows["repeat"]).mean().reindex(list(blocks)).to_numpy(dtype=float),
        tokens_BP=tokens_BP,
        service_ns_BP=service_ns_BP,
    )


def _tps(rows: pd.DataFrame) -> float:
    """TPS of a block, nan without tokens or time."""
    found = throughput_metrics(rows, rows.iloc[:0])["tps"]
    return float("nan") if found is None else float(found)
