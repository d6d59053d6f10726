"""The noise floor of a machine, from an A/A experiment: detectable effects and the rate of false verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from specbench.harness.exit_codes import InvalidError
from specbench.harness.stats.paired import Shared, paired
from specbench.harness.stats.power import as_fraction, mde, pairs_needed
from specbench.harness.stats.verdict import IMPROVED, MIN_EFFECT, MIN_PAIRS, REGRESSED, decide
from specbench.harness.store.ab_judgement import JudgedMetric, Judgement
from specbench.harness.store.codec import read_document, write_document
from specbench.harness.store.environment import Cpu, Environment, Hardware
from specbench.harness.store.files import sha256_json
from specbench.harness.store.inputs_record import ModelRecord
from specbench.harness.store.noise_record import NOISE_SCHEMA, MeasuredModel, MetricNoise, NoiseFile, NoiseFloor
from specbench.harness.store.run_record import RunRecord
from specbench.workloads.assets.cache import cache_root

_BLOCKS = (6, 10, 20)
_EFFECTS = (0.01, 0.02, 0.05)
_MAX_FLOORS = 50
_NUM_RESAMPLES = 2000
_SEED = 20_078  # fixed: the same blocks always give the same floor


def noise_floor(judged: Judgement, run: RunRecord) -> NoiseFloor:
    """The noise floor from an A/A experiment (`ab.json`); InvalidError with too few blocks."""
    metrics = tuple(_metric(m, judged.plan.min_effect) for m in judged.metrics if m.num_pairs >= 2)
    if judged.num_kept < 2 or not metrics:
        reasons = sorted({reason for block in judged.blocks for reason in block.reasons})
        rejected = f", {judged.num_rejected} are rejected ({'; '.join(reasons)})" if reasons else ""
        raise InvalidError(
            f"aa: {judged.num_kept} blocks are valid, too few to estimate a spread{rejected}; measure more"
        )
    return NoiseFloor(
        measured_utc=run.started_utc,
        run_id=judged.run_id,
        command=run.command,
        arm=judged.arms["A"].name,
        model=_model(run),
        max_concurrency=run.sampling.max_concurrency if run.sampling else None,
        workload=run.workload.name if run.workload else None,
        in_process=judged.plan.in_process,
        num_blocks=judged.num_kept,
        num_rejected=judged.num_rejected,
        verdict=judged.verdict,
        metrics=metrics,
    )


def _model(run: RunRecord) -> MeasuredModel:
    model = run.model or ModelRecord()
    return MeasuredModel(name=model.name, dtype=model.dtype, device=model.device)


def _metric(judged: JudgedMetric, min_effect: float) -> MetricNoise:
    logs = np.log(np.asarray(judged.pairs, dtype=float))
    ratios = logs[:, 1] - logs[:, 0]
    sd = float(ratios.std(ddof=1))
    cv_in_block, cv_between_blocks = block_cvs(logs)
    return MetricNoise(
        name=judged.metric.name,
        pairs=judged.metric.pairs,
        gated=judged.metric.gated,
        num_pairs=judged.num_pairs,
        cv_in_block=cv_in_block,
        cv_between_blocks=cv_between_blocks if judged.metric.pairs == "blocks" else None,
        least_effect={str(n): as_fraction(mde(sd, n)) for n in _BLOCKS},
        blocks_needed={f"{effect:g}": _needed(effect, sd) for effect in _EFFECTS},
        false_verdicts=false_verdicts(ratios, min_effect),
    )


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


def false_verdicts(ratios: Sequence[float] | np.ndarray, min_effect: float = MIN_EFFECT) -> float:
    """Share of A/A experiments of ten blocks that would report a change: blocks are resampled and their sides swapped
    at random."""
    draw = np.random.default_rng(_SEED)
    drawn = draw.choice(np.asarray(ratios, dtype=float), size=(_NUM_RESAMPLES, 10))
    found = paired(drawn * draw.choice((-1.0, 1.0), size=drawn.shape))
    verdicts = decide(found, found.p, "lower", min_effect)
    return float(np.isin(verdicts, (IMPROVED, REGRESSED)).mean())


def between_runs(metrics: Sequence[MetricNoise], name: str) -> Shared | None:
    """Between-process variance of a metric's log ratio (A/A), which an interval over the repeats or prompts of one
    process does not contain. None for a metric that the floor lacks or that is paired by prompt.

    Processes differ by the drift between blocks and by their own conditions (memory layout, clocks), which show in
    the spread within a block. That spread also contains the noise of a process's own figures, so the sum is never too
    small. Two processes: twice the variance.
    """
    for metric in metrics:
        if metric.name == name and metric.cv_between_blocks is not None:
            one = metric.cv_between_blocks**2 + metric.cv_in_block**2
            return Shared(variance=2 * one, freedom=metric.num_pairs - 1)
    return None


def fitting_floor(floors: Sequence[NoiseFloor], run: RunRecord, arm: str) -> NoiseFloor | None:
    """The stored floor of this hardware that was measured like `run`: same model, number format, device and
    concurrency, in fresh processes. Preferred are floors with enough blocks for a verdict, then those of the same arm,
    then the newest."""
    same = _model(run), run.sampling.max_concurrency if run.sampling else None
    fits = [floor for floor in floors if (floor.model, floor.max_concurrency) == same and not floor.in_process]
    return min(fits, key=lambda floor: (floor.num_blocks < MIN_PAIRS, floor.arm != arm), default=None)


def floor_file(environment: Environment) -> Path:
    """Where the floors of this hardware are stored: next to the downloads, one file for each set of CPU and GPUs."""
    hardware = environment.hardware or Hardware()
    cpu = hardware.cpu or Cpu()
    identity = sha256_json([cpu.model, cpu.usable_cores, cpu.logical_cores, [gpu.name for gpu in hardware.gpus]])
    return cache_root() / "noise" / f"{identity[:12]}.json"


def read_floors(environment: Environment) -> tuple[NoiseFloor, ...]:
    """Stored floors of this hardware, newest first; ValueError for a file with other content."""
    path = floor_file(environment)
    if not path.exists():
        return ()
    try:
        return read_document(path, NoiseFile, NOISE_SCHEMA).floors
    except ValueError as error:
        raise ValueError(f"{error}, or remove it and measure: specbench power --aa 10") from error


def store_floor(floor: NoiseFloor, environment: Environment) -> Path:
    """Adds a floor, in place of what its run had stored before, and keeps the newest fifty."""
    path = floor_file(environment)
    others = (other for other in read_floors(environment) if other.run_id != floor.run_id)
    floors = tuple(sorted((floor, *others), key=lambda each: each.measured_utc, reverse=True)[:_MAX_FLOORS])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_document(path, NoiseFile(hardware=environment.describe_hardware(), floors=floors))
    return path


def outlook(floor: NoiseFloor, num_blocks: int) -> str:
    """One line before an experiment: the changes that this machine could detect in `num_blocks` blocks."""
    gated = [metric for metric in floor.metrics if metric.gated and metric.pairs == "blocks"]
    effects = {m.name: as_fraction(mde(m.cv_in_block * 2**0.5, num_blocks)) for m in gated}
    changes = ", ".join(f"{name} {effect:.2%}" for name, effect in effects.items())
    return (
        f"{num_blocks} blocks could detect changes of {changes}, given the noise of this machine's last A/A "
        f"({floor.arm} on {floor.model.name}, {floor.measured_utc})"
    )
