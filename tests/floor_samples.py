"""Made-up noise floors of the machine that made-up runs say they ran on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from run_samples import ENVIRONMENT

from specbench.harness.judge.noise import store_floor
from specbench.harness.store.noise_record import MeasuredModel, MetricNoise, NoiseFloor

NAMES = ("step time", "TPOT", "TPS", "TTFT")


def metric(name: str, cv_in_block: float, cv_between_blocks: float | None, num_pairs: int = 10) -> MetricNoise:
    return MetricNoise(
        name=name,
        pairs="blocks" if cv_between_blocks is not None else "prompts",
        gated=True,
        num_pairs=num_pairs,
        cv_in_block=cv_in_block,
        cv_between_blocks=cv_between_blocks,
        least_effect={},
        blocks_needed={},
        false_verdicts=0.0,
    )


def floor(cv: float, num_blocks: int = 10, **more: Any) -> NoiseFloor:
    """A floor of `cv` from process to process, measured on what `compare_samples` runs."""
    metrics = [metric(name, 0.6 * cv, 0.8 * cv, num_blocks) for name in NAMES]
    made = {
        "arm": "eagle:k=4",
        "num_blocks": num_blocks,
        "num_rejected": 0,
        "model": MeasuredModel(name="toy-model", dtype=None, device=None),
        "max_concurrency": 1,
        "in_process": False,
        "measured_utc": "2026-01-02T03:04:05Z",
        "run_id": "aa",
        "command": "specbench power --aa 10",
        "workload": "toy",
        "verdict": "equivalent",
        "metrics": (*metrics, metric("tokens per step", 0.0, None, 24)),
    }
    return NoiseFloor(**made | more)


def store(cv: float, **more: Any) -> Path:
    """Stored where SPECBENCH_CACHE says: set it to a folder of the test's own."""
    return store_floor(floor(cv, **more), ENVIRONMENT)
