"""The noise floor of a machine, learnt from an A/A experiment: what its blocks could show, and how often they lie."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specbench.harness.stats.paired import Shared, paired
from specbench.harness.stats.power import as_fraction, least_effect, pairs_needed
from specbench.harness.stats.verdict import IMPROVED, MIN_EFFECT, MIN_PAIRS, REGRESSED, decide
from specbench.harness.store.ab_judgement import JudgedMetric, Judgement
from specbench.harness.store.environment import Cpu, Environment, Hardware
from specbench.harness.store.files import write_json
from specbench.harness.store.inputs_record import ModelRecord
from specbench.harness.store.run_record import RunRecord
from specbench.workloads.assets.cache import cache_root

NOISE_SCHEMA = "specbench.noise/1"
BLOCKS = (6, 10, 20)
EFFECTS = (0.01, 0.02, 0.05)
_MOST_FLOORS = 50
_KEYS = {"measured_utc", "arm", "model", "max_concurrency", "in_process", "metrics"}  # what readers take for granted
_NUM_RESAMPLES = 2000
_SEED = 20_078  # fixed: the same blocks always give the same floor


def noise_floor(judged: Judgement, run: RunRecord) -> dict[str, Any]:
    """The floor that an A/A experiment (`ab.json`) found, as plain data; ValueError with too few blocks to tell."""
    metrics = [_metric(m, judged.plan.min_effect) for m in judged.metrics if m.num_pairs >= 2]
    if judged.num_kept < 2 or not metrics:
        raise ValueError(f"aa: {judged.num_kept} measured blocks are too few to see any spread; measure more")
    return {
        "measured_utc": run.started_utc,
        "run_id": judged.run_id,
        "command": run.command,
        "arm": judged.arms["A"].name,
        **_key(run),
        "workload": run.workload.name if run.workload else None,
        "in_process": judged.plan.in_process,
        "num_blocks": judged.num_kept,
        "num_rejected": judged.num_rejected,
        "verdict": judged.verdict,
        "metrics": metrics,
    }


def _key(run: RunRecord) -> dict[str, Any]:
    """What the noise of another run must have been measured with as well."""
    model = run.model or ModelRecord()
    return {
        "model": {"name": model.name, "dtype": model.dtype, "device": model.device},
        "max_concurrency": run.sampling.max_concurrency if run.sampling else None,
    }


def _metric(found: JudgedMetric, min_effect: float) -> dict[str, Any]:
    logs = np.log(np.asarray(found.pairs, dtype=float))
    ratios = logs[:, 1] - logs[:, 0]
    sd = float(ratios.std(ddof=1))
    cv_in_block, cv_between_blocks = block_cvs(logs)
    return {
        "name": found.metric.name,
        "pairs": found.metric.pairs,
        "gated": found.metric.gated,
        "num_pairs": found.num_pairs,
        "cv_in_block": cv_in_block,
        "cv_between_blocks": cv_between_blocks if found.metric.pairs == "blocks" else None,  # not of prompts
        "least_effect": {str(n): as_fraction(least_effect(sd, n)) for n in BLOCKS},
        "blocks_needed": {f"{e:g}": _needed(e, sd) for e in EFFECTS},
        "false_verdicts": false_verdicts(ratios, min_effect),
    }


def block_cvs(logs: np.ndarray) -> tuple[float, float]:
    """CV of one side within a block, and of the drift between blocks, from the logs of both sides [blocks, 2].

    A mean of two sides varies by the drift between blocks and by half the variance of one side within a block.
    """
    variance = float((logs[:, 1] - logs[:, 0]).var(ddof=1))
    drift = max(0.0, float(logs.mean(axis=1).var(ddof=1)) - variance / 4)
    return (variance / 2) ** 0.5, drift**0.5


def _needed(effect: float, sd: float) -> int | None:
    needed = pairs_needed(float(np.log1p(effect)), sd)
    return None if needed is None else max(MIN_PAIRS, needed)


def false_verdicts(ratios: Sequence[float] | np.ndarray, min_effect: float = MIN_EFFECT, num_blocks: int = 10) -> float:
    """Share of experiments on equal sides that end in a change: blocks drawn anew, their sides swapped by chance."""
    draw = np.random.default_rng(_SEED)
    drawn = draw.choice(np.asarray(ratios, dtype=float), size=(_NUM_RESAMPLES, num_blocks))
    found = paired(drawn * draw.choice((-1.0, 1.0), size=drawn.shape))
    verdicts = decide(found, found.p, "lower", min_effect)
    return float(np.isin(verdicts, (IMPROVED, REGRESSED)).mean())


def between_runs(floor: Mapping[str, Any], metric: str) -> Shared | None:
    """How far the log ratio of two single processes strays on this machine, were they the same: what no interval over
    their own repeats or prompts holds. None for a metric that the floor lacks, or that prompts decide.

    A process differs from the next by the drift between blocks and by what it draws itself (layout, clocks), which is
    in the spread within a block; that spread also holds the noise of a process's own figures, so that it is no less
    than the truth. Two processes: twice the variance.
    """
    for found in floor["metrics"]:
        if found["name"] == metric and found["cv_between_blocks"] is not None:
            one = found["cv_between_blocks"] ** 2 + found["cv_in_block"] ** 2
            return Shared(variance=2 * one, freedom=found["num_pairs"] - 1)
    return None


def fitting_floor(floors: Sequence[Mapping[str, Any]], run: RunRecord, arm: str) -> Mapping[str, Any] | None:
    """Of a hardware's floors, newest first, one that was measured as `run` was: the same model, number
    format, device and concurrency, in fresh processes. Of these one with blocks enough for a verdict, as few say little
    of the noise; then one of the same arm; then the newest."""
    asked = _key(run)
    fits = [f for f in floors if {key: f[key] for key in asked} == asked and not f["in_process"]]
    return min(fits, key=lambda f: (f["num_blocks"] < MIN_PAIRS, f["arm"] != arm), default=None)


def floor_file(environment: Environment) -> Path:
    """Where the floors of this hardware are kept: beside the downloads, one file for each set of CPU and GPUs."""
    hardware = environment.hardware or Hardware()
    gpus, cpu = [gpu.name for gpu in hardware.gpus], hardware.cpu or Cpu()
    identity = json.dumps([cpu.model, cpu.usable_cores, cpu.logical_cores, gpus])
    return cache_root() / "noise" / f"{hashlib.sha256(identity.encode()).hexdigest()[:12]}.json"


def read_floors(environment: Environment) -> list[dict[str, Any]]:
    """Stored floors of this hardware, newest first; ValueError for a file that is none."""
    path = floor_file(environment)
    if not path.exists():
        return []
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: damaged ({error}); remove it and measure again: specbench power --aa 10") from error
    if not isinstance(stored, dict) or stored.get("schema") != NOISE_SCHEMA or not _are_floors(stored.get("floors")):
        raise ValueError(f"{path}: is not of schema {NOISE_SCHEMA!r}; remove it and measure: specbench power --aa 10")
    return list(stored["floors"])


def _are_floors(stored: Any) -> bool:
    return isinstance(stored, list) and all(isinstance(floor, dict) and _KEYS <= floor.keys() for floor in stored)


def store_floor(floor: Mapping[str, Any], environment: Environment) -> Path:
    """Adds a floor in front of those stored; the oldest beyond fifty go."""
    path = floor_file(environment)
    floors = [floor, *read_floors(environment)][:_MOST_FLOORS]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"schema": NOISE_SCHEMA, "hardware": environment.describe_hardware(), "floors": floors})
    return path


def outlook(floor: Mapping[str, Any], num_blocks: int) -> str:
    """One line before an experiment: what this machine could show in so many blocks."""
    parts = [
        f"{m['name']} {as_fraction(least_effect(m['cv_in_block'] * 2**0.5, num_blocks)):.2%}"
        for m in floor["metrics"]
        if m["gated"] and m["pairs"] == "blocks"
    ]
    return (
        f"{num_blocks} blocks could show changes of {', '.join(parts)}, were the noise that of this machine's last A/A "
        f"({floor['arm']} on {floor['model']['name']}, {floor['measured_utc']})"
    )
