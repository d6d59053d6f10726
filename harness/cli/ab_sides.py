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

from .run_options import requested
from .run_plan import is_typed

_UsageError: Any = typer.BadParameter.__base__  # click's, or the copy of it that newer versions of typer hold
_REF = "ref:"
_LOAD = (
    "model",
    "max_concurrency",
    "request_rate",
    "burstiness",
    "temperature",
    "top_k",
    "top_p",
    "ignore_eos",
    "seed",
)
_PROMPTS = dataclasses.fields(WorkloadRequest)
# Options of `run` that the experiment itself decides.
_OWN = ("num_repeats", "resume", "batch_sizes", "output_dir", "label", "as_json", "quiet")
_BESIDE = ("accuracy", "certify_graphs")  # what `run` does after its blocks; here it would be done again in each


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

    Raises ValueError for options that `run` does not take or that are not a side's.
    """
    from .main import app

    command: Any = typer.main.get_command(app)
    run = command.commands["run"]
    try:
        ctx = run.make_context(f"specbench run ({side.label})", list(side.words))
    except _UsageError as error:
        raise ValueError(f"{side.label}: {error.format_message()}") from error
    given = ["--" + name.replace("_", "-") for name in _OWN if is_typed(ctx, name)]
    if given:
        raise ValueError(f"{side.label}: {', '.join(given)} cannot be a side's; every block is one repeat (--blocks)")
    if beside := ["--" + name.replace("_", "-") for name in _BESIDE if is_typed(ctx, name)]:
        raise ValueError(f"{side.label}: {', '.join(beside)}: each block would do it again; use specbench run for it")
    config = requested(ctx).config
    if len(config.arms) != 1:
        labels = ", ".join(arm.label for arm in config.arms)
        raise ValueError(f"{side.label}: must be one arm, not {labels}; name it with -s")
    (arm,) = config.arms
    return dataclasses.replace(config, arms=(dataclasses.replace(arm, label=side.label),), num_repeats=1)


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
