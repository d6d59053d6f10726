"""From lm-eval's `model_args` to one deployed arm, by the same keys as `specbench run`."""

from __future__ import annotations

from typing import Any

from specbench.harness.engines.table import open_engine
from specbench.harness.quality.lm_evaluation.serving import Serving
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.run_config import RunConfig
from specbench.harness.spec.spellings import canonical
from specbench.workloads.json_values import Json, JsonObject

_NUMBERS = ("max_num_batched_tokens", "page_size", "num_pages", "seed", "max_concurrency", "max_model_len")
_WORDS = ("model", "dtype", "device")


def arm_config(strategy: str, options: JsonObject) -> RunConfig:
    """A run of one arm. Keys of a run (model, dtype, device, max_model_len, seed, ...) are taken out of `options`; all
    others are the arm's (k, head, graph, attention, ...). Raises ValueError as `specbench run` does."""
    rest = {canonical(key, (*_NUMBERS, *_WORDS)): value for key, value in options.items() if value is not None}
    run: dict[str, Any] = {key: str(rest.pop(key)) for key in _WORDS if key in rest}
    run |= {key: _whole(key, rest.pop(key)) for key in _NUMBERS if key in rest}
    body = ",".join(f"{key}={value}" for key, value in rest.items())
    arm = parse_arm(f"{strategy}:{body}" if body else strategy)
    return RunConfig(arms=(arm,), dataset_name="gsm8k", **run)


def _whole(key: str, value: Json) -> int:
    if not str(value).isdigit():
        raise ValueError(f"{key}: {value!r} is not a whole number >= 0")
    return int(str(value))


def open_arm(config: RunConfig) -> Serving:
    """Deploys the run's only arm. Raises ValueError naming what does not fit."""
    engine = open_engine(config.engine)
    model, (arm,) = engine.open(config, NullProgress())
    if model.tokenizer is None:
        raise ValueError("load_format: dummy weights have no tokenizer; accuracy needs a real model")
    # lm-eval has no word for the end of a model: this deployment lives as long as its process.
    return Serving(model, engine.capabilities(), engine.deploy(arm, config).__enter__())
