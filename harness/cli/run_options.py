"""What the options of `specbench run` ask for, for every command that takes them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from .run import with_head
from .run_plan import default_strategies, is_typed, make_plan, parse_batch_sizes

if TYPE_CHECKING:
    from specbench.harness.run_config import ArmConfig, RunConfig

_WORKLOAD = (
    "num_prompts seed max_model_len output_len random_input_len random_output_len random_range_ratio "
    "hf_split hf_subset hf_column"
).split()  # options that WorkloadRequest has under the same name


@dataclass(frozen=True, kw_only=True, slots=True)
class Requested:
    """`config` with its arms; `batch_sizes` to run it at; `record` goes into run.json beside it (run_plan.py)."""

    config: RunConfig
    batch_sizes: tuple[int, ...]
    record: dict[str, Any]


def requested(ctx: typer.Context) -> Requested:
    """Reads a context whose command has the options of `run`. ValueError naming what is wrong and what is allowed."""
    given = ctx.params
    head, model, load_format = given["head"], given["model"], given["load_format"]
    texts = [with_head(text, head) for text in given["strategy"] or default_strategies(model, load_format)]
    plan = make_plan(ctx, texts)
    config = run_config(ctx, plan.arms)
    sizes = parse_batch_sizes(given["batch_sizes"]) or [config.max_concurrency]
    return Requested(config=config, batch_sizes=tuple(sizes), record=plan.record)


def run_config(ctx: typer.Context, arms: tuple[ArmConfig, ...]) -> RunConfig:
    """The configuration of these arms under the command's options; what the command has no option for is the default.

    ValueError naming what is wrong and what is allowed.
    """
    from specbench.harness.run_config import RunConfig
    from specbench.workloads.base import WorkloadRequest

    given = ctx.params
    if is_typed(ctx, "head") and not any("head" in arm.options for arm in arms):
        labels = ", ".join(arm.label for arm in arms)
        raise ValueError(f"head: {given['head']!r} is of no use; no arm among {labels} takes a head")
    workload = WorkloadRequest(
        name=given["dataset_name"], path=given["dataset_path"], **{name: given[name] for name in _WORKLOAD}
    )
    own = {field.name for field in dataclasses.fields(RunConfig)} - {"arms", "workload"}
    return RunConfig(
        arms=arms,
        workload=workload,
        stop_token_ids=tuple(given["stop_token_id"] or ()),
        **{name: value for name, value in given.items() if name in own},
    )
