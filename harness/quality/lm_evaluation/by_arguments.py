"""Starts an arm from lm-eval's own command: `lm_eval --model specbench --model_args KEY=VALUE,...`."""

from __future__ import annotations

from typing import Any

from lm_eval.utils import simple_parse_args_string

from specbench.harness.quality.lm_evaluation.model import EngineLM
from specbench.harness.registry import BASELINE
from specbench.harness.run.prepare import serve
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.spec.fields import named_values
from specbench.harness.spec.spellings import canonical
from specbench.workloads.json_values import Json, JsonObject

# Keys of `model_args` that are options of the run; all others are the arm's.
_RUN_KEYS = (
    *("model", "dtype", "device", "max_concurrency", "max_model_len", "max_num_batched_tokens", "page_size"),
    *("num_pages", "mixed_chunk_size", "seed"),
)


class SpecbenchLM(EngineLM):
    """`lm_eval --model specbench --model_args strategy=naive-eagle,k=4,...`: keys as in `specbench run`."""

    def __init__(
        self,
        strategy: str = BASELINE,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        pretrained: str | None = None,
        **options: Json,
    ):
        """`batch_size` is the concurrency; `pretrained` is an alias of `model`. ValueError for an unknown key."""
        if not str(batch_size).isdigit():
            raise ValueError(f"batch_size: {batch_size!r} is not allowed; give a number of requests in flight")
        options.setdefault("max_concurrency", batch_size)
        options.setdefault("model", pretrained)
        # lm-eval passes cuda:0 by default, and its `hf` falls back to the CPU silently.
        if device is not None and not device.startswith("cuda"):
            options["device"] = device
        served = serve(_arm_config(strategy, options), NullProgress())
        # lm-eval never closes a model: this deployment lives as long as its process.
        super().__init__(served, served.deployments.of(served.arms[0]))

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> SpecbenchLM:
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> SpecbenchLM:
        """As in lm-eval, which passes its own options together with `model_args`: ValueError for a key that is in
        both."""
        config = {key: value for key, value in (additional_config or {}).items() if value is not None}
        for key in (key for key in arg_dict if key in config):
            raise ValueError(f"{key}: is an option of lm-eval, not a key of --model_args; give --{key} {arg_dict[key]}")
        return cls(**arg_dict, **config)


def _arm_config(strategy: str, options: JsonObject) -> RunConfig:
    """A run of one arm: keys of a run (_RUN_KEYS), and those of the arm (k, head, graph, attention, ...). Raises
    ValueError as `specbench run` does."""
    named = {canonical(key, _RUN_KEYS): value for key, value in options.items() if value is not None}
    run: dict[str, Any] = named_values({key: named.pop(key) for key in _RUN_KEYS if key in named}, Conditions.schema())
    body = ",".join(f"{key}={value}" for key, value in named.items())
    return RunConfig(arms=(parse_arm(f"{strategy}:{body}" if body else strategy),), dataset_name="gsm8k", **run)
