"""Made-up noise floors of the machine that made-up runs say they ran on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from run_samples import ENVIRONMENT

from specbench.harness.judge.noise import store_floor

NAMES = ("step time", "TPOT", "TPS", "TTFT")


def floor(cv: float, num_blocks: int = 10, **more: Any) -> dict[str, Any]:
    """A floor of `cv` from process to process, measured on what `compare_samples` runs."""
    metrics = [
        {"name": name, "cv_in_block": 0.6 * cv, "cv_between_blocks": 0.8 * cv, "num_pairs": num_blocks}
        for name in NAMES
    ]
    metrics.append({"name": "tokens per step", "cv_in_block": 0.0, "cv_between_blocks": None, "num_pairs": 24})
    made = {
        "arm": "eagle:k=4",
        "num_blocks": num_blocks,
        "model": {"name": "toy-model", "dtype": None, "device": None},
        "max_concurrency": 1,
        "in_process": False,
        "measured_utc": "2026-01-02T03:04:05Z",
        "metrics": metrics,
    }
    return made | more


def store(cv: float, **more: Any) -> Path:
    """Stored where SPECBENCH_CACHE says: set it to a folder of the test's own."""
    return store_floor(floor(cv, **more), ENVIRONMENT)
