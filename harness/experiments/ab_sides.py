"""Parses an A/B command into its sides, and each side into the configuration of a run."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence

from specbench.harness.run.prepare import arm_check
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.options import RunOptions
from specbench.harness.spec.plan import plan_run
from specbench.harness.spec.spellings import written_keys
from specbench.harness.store.ab_record import LABELS, AbPlan, Side

_REF = "ref:"
# The configuration of each side; None if another revision parses it.
Configs = tuple[RunConfig | None, RunConfig | None]
# Options of `run` that the whole experiment has, and what `run` does after its blocks, which every block would repeat.
_OF_THE_WHOLE = ("resume", "output_dir", "label", "format", "quiet", "progress")
_BESIDE = ("accuracy", "certify_graphs", "goodput")


def parse_side(label: str, text: str, ref: str | None, common: Sequence[str]) -> Side:
    """`text`: an arm (`eagle:k=4`), options of `specbench run`, or both, after an optional `ref:REVISION`.

    `common` are options of both sides; they come first, so that a side's own replace them.
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

    Raises ValueError, which names the side, for options that `run` does not have or that a side cannot set.
    """
    try:
        return _as_side(side.label, _one_arm(side.words, "--blocks", name_it(side)))
    except ValueError as error:
        raise ValueError(f"{side.label}: {error}") from error


def name_it(side: Side) -> str:
    """How a side gets its arm."""
    return f"name it in -{side.label}, as -{side.label} eagle:k=4, or for both sides with -s"


def _one_arm(words: Sequence[str], blocks: str, how: str) -> RunConfig:
    """`blocks`: the flag of the number of blocks; `how`: what the user can do if the words name no arm or several."""
    with RunOptions.as_written(written_keys(words)):
        return _config_of_one_arm(words, blocks, how)


def _config_of_one_arm(words: Sequence[str], blocks: str, how: str) -> RunConfig:
    options = RunOptions.parse(words)
    if given := _flags(options, ("num_repeats",)):
        raise ValueError(f"{given}: every block is one repeat; set the number of blocks with {blocks}")
    if given := _flags(options, ("batch_sizes",)):
        raise ValueError(f"{given}: every block has the same load; set it with --max-concurrency")
    if given := _flags(options, _OF_THE_WHOLE):
        raise ValueError(f"{given} cannot be set for one side; set it for both, outside of -A and -B")
    if beside := _flags(options, _BESIDE):
        raise ValueError(f"{beside}: each block would repeat it; use specbench run for it")
    config = plan_run(options, arm_check(options)).config
    if len(config.arms) != 1:
        labels = ", ".join(arm.label for arm in config.arms)
        raise ValueError(f"strategy: {labels} are not allowed; allowed: one arm; {how}")
    return config


def configs_of(plan: AbPlan) -> Configs:
    """Configurations of both sides; None for a side with a revision, whose own code parses its options."""
    a, b = (side_config(side) if side.ref is None else None for side in plan.sides)
    for config in (a, b):
        if config is not None:  # an error in B must not show up after a block of A
            (arm,) = config.arms
            try:
                arm_check(config)(arm)
            except ValueError as error:
                raise ValueError(f"{arm.label}: {error}") from error
    return a, b


def aa_configs(words: Sequence[str]) -> Configs:
    """Configurations of an A/A, whose user names one arm and no sides."""
    config = _one_arm(words, "--aa", "name it with -s")
    arm_check(config)(config.arms[0])
    a, b = (_as_side(label, config) for label in LABELS)
    return a, b


def _as_side(label: str, config: RunConfig) -> RunConfig:
    (arm,) = config.arms
    return dataclasses.replace(config, arms=(dataclasses.replace(arm, label=label),), num_repeats=1)


def _flags(options: RunOptions, names: Sequence[str]) -> str:
    schema = options.schema()
    return ", ".join(schema[name].flag for name in names if name in options.given)
