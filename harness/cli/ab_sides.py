"""From the words of `specbench ab` to its sides, and from a side's words to the configuration of a run."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any

import typer

from specbench.harness.ab.plan import AbPlan, Side
from specbench.harness.experiments.ab import Configs
from specbench.harness.run_config import RunConfig

from .run_options import requested
from .run_plan import is_typed

_UsageError: Any = typer.BadParameter.__base__  # click's, or the copy of it that newer versions of typer hold
_REF = "ref:"
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


def configs_of(plan: AbPlan) -> Configs:
    """Of both sides; a side with a revision is read by that revision."""
    a, b = (side_config(side) if side.ref is None else None for side in plan.sides)
    return a, b
