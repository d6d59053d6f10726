"""From the words of `specbench ab` to its sides, and from a side's words to the configuration of a run."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any

import typer

from specbench.harness.ab.plan import NotComparableError, Side
from specbench.harness.run_config import RunConfig
from specbench.workloads.base import WorkloadRequest

from .run_plan import default_strategies, is_typed, make_plan

_REF = "ref:"
_LOAD = ("max_concurrency", "request_rate", "burstiness", "temperature", "top_k", "top_p", "ignore_eos", "seed")
_PROMPTS = dataclasses.fields(WorkloadRequest)
# Options of `run` that the experiment itself decides.
_OWN = ("num_repeats", "resume", "batch_sizes", "output_dir", "label", "as_json", "quiet")


def parse_side(label: str, text: str, ref: str | None, common: Sequence[str]) -> Side:
    """`text`: an arm (`eagle:k=4`), options of `specbench run`, or both, after an optional `ref:REVISION`.

    `common` are options of both sides, which stand first, so that a side's own replace them.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{label}: cannot read {text!r}: {error}") from error
    if words and words[0].startswith(_REF):
        if ref is not None:
            raise ValueError(f"{label}: a revision is given twice, {words[0]!r} and --ref-{label.lower()} {ref}")
        ref, words = words[0].removeprefix(_REF), words[1:]
    if words and not words[0].startswith("-"):
        words = ["-s", *words]
    if ref == "":
        raise ValueError(f"{label}: {_REF} needs a revision, as ref:main")
    return Side(label=label, text=text, words=(*common, *words), ref=ref)


def side_config(side: Side) -> RunConfig:
    """The configuration that `specbench run` makes of a side's words: one arm, which gets the side's label.

    Raises ValueError, or typer's own usage errors, for options that `run` does not take or that are not a side's.
    """
    from .main import app

    command: Any = typer.main.get_command(app)
    run = command.commands["run"]
    ctx = run.make_context(f"specbench run ({side.label})", list(side.words))
    given = ["--" + name.replace("_", "-") for name in _OWN if is_typed(ctx, name)]
    if given:
        raise ValueError(f"{side.label}: {', '.join(given)} cannot be a side's; every block is one repeat (--blocks)")
    p = ctx.params
    from .run import _with_head

    texts = p["strategy"] or default_strategies(p["model"], p["load_format"])
    plan = make_plan(ctx, [_with_head(text, p["head"]) for text in texts])
    if len(plan.arms) != 1:
        labels = ", ".join(arm.label for arm in plan.arms)
        raise ValueError(f"{side.label}: must be one arm, not {labels}; name it with -s")
    (arm,) = plan.arms
    return run_config(p, dataclasses.replace(arm, label=side.label))


def run_config(params: dict[str, Any], *arms: Any) -> RunConfig:
    """The options of `specbench run` as its configuration: fields are named as the options are."""
    names = {field.name for field in dataclasses.fields(WorkloadRequest)} & set(params)
    workload = WorkloadRequest(
        name=params["dataset_name"], path=params["dataset_path"], **{name: params[name] for name in names}
    )
    names = {field.name for field in dataclasses.fields(RunConfig)} & set(params)
    values = {name: params[name] for name in names}
    return RunConfig(
        **{**values, "num_repeats": 1},
        arms=arms,
        workload=workload,
        stop_token_ids=tuple(params["stop_token_id"] or ()),
    )


def check_same_load(a: RunConfig, b: RunConfig) -> None:
    """NotComparableError where the sides ask for other prompts, sampling or load: before minutes are measured."""
    found = {name: (getattr(a, name), getattr(b, name)) for name in _LOAD}
    found |= {f"dataset {f.name}": (getattr(a.workload, f.name), getattr(b.workload, f.name)) for f in _PROMPTS}
    different = [f"{name}: {one} and {other}" for name, (one, other) in found.items() if one != other]
    if different:
        raise NotComparableError(f"A and B differ in {'; '.join(different)}")


def joined_config(a: RunConfig, b: RunConfig, num_blocks: int) -> RunConfig:
    """Both arms in one run; ValueError where the sides differ in more than the arm."""
    different = [
        field.name
        for field in dataclasses.fields(RunConfig)
        if field.name != "arms" and getattr(a, field.name) != getattr(b, field.name)
    ]
    if different:
        raise ValueError(
            f"in_process: the sides must differ in nothing but their arm, but they do in {', '.join(different)}; "
            "leave --in-process out"
        )
    return dataclasses.replace(a, arms=(*a.arms, *b.arms), num_repeats=num_blocks)


def parse_percent(name: str, text: str) -> float:
    """`1%` or `0.01`; ValueError for a bare number of 1 or more, which could mean either."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / 100 if text.strip().endswith("%") else float(number)
    except ValueError:
        value = -1.0
    if not text.strip().endswith("%") and value >= 1:
        value = -1.0
    if value < 0:
        raise ValueError(f"{name}: {text!r} is not allowed; give a percentage, as 1% or 0.5%")
    return value
