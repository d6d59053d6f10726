"""The arms of a run: those the user names, a recipe's, or a base with one switch changed at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specbench.harness.registry import ENGINES, WORKLOADS, lookup

from .ablation import ablate, parse_ablations
from .arm import PROGRAM_KEYS, STRATEGY_KEYS, ArmConfig, CheckArm, parse_arm, with_own_keys, with_switches
from .conditions import Conditions, RunConfig
from .measured_acceptance import find_measured, with_measured_rates
from .options import RunOptions
from .recipe_files import Base, Recipe, RecipeArm
from .same_arms import check_different, default_head, first_of_same
from .table_records import Ablation, RecipeRecord, RecipeRow

LENGTHS = ("random_input_len", "random_output_len", "random_range_ratio")
_CLIENT_KEYS = ("tokenizer", "api_key_env", "num_clients", "deploy")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """`config` with its arms; `batch_sizes` to run it at; `recipe`, `ablation`: the table that the run is for.
    `acceptance`: the source of measured acceptance rates that are forced."""

    config: RunConfig
    batch_sizes: tuple[int, ...]
    recipe: RecipeRecord | None = None
    ablation: Ablation | None = None
    acceptance: str = ""


def plan_run(options: RunOptions, check: CheckArm) -> RunPlan:
    """Raises ValueError for options that are mutually exclusive, and for arms that cannot be parsed."""
    if options.ablate and options.base is None:
        raise ValueError("ablate: needs --base, the arm whose switches are changed")
    recipe, ablation = None, None
    if isinstance(options.file, Base):
        if options.strategy:
            raise ValueError("strategy: --base brings its own arm; drop --strategy, or change the base with --ablate")
        values = parse_ablations(options.ablate) if options.ablate else options.file.ablations
        arms, ablation = ablate(options.file, values, options.switches, check)
    elif isinstance(options.file, Recipe):
        arms, recipe = recipe_arms(options.file, options, check)
    else:
        arms = [named_arm(text, options) for text in options.strategy or default_strategies(options)]
        check_different(arms, options, check)
    return RunPlan(
        config=plan_config(options, arms),
        batch_sizes=options.sizes,
        recipe=recipe,
        ablation=ablation,
        acceptance=acceptance_note(options),
    )


def acceptance_note(options: RunOptions) -> str:
    """The sources of measured acceptance, of all arms and of single ones; empty for any other kind."""
    arms = [parse_arm(text) for text in options.strategy]
    if isinstance(options.file, Recipe):  # under its switches, --acceptance replaces what its arms set
        arms = [] if "acceptance" in options.given else arms or [each.arm for each in options.file.arms]
    texts = dict.fromkeys([options.acceptance, *(arm.engine.get("acceptance") for arm in arms)])
    return "; ".join(found.note for text in texts if (found := find_measured(text)))


def plan_config(options: RunOptions, arms: Sequence[ArmConfig]) -> RunConfig:
    """These arms under the options. ValueError for an option that would have no effect: of strategies or of other
    engines if no arm takes it, or beside another option."""
    for key in STRATEGY_KEYS:
        value = getattr(options, key)
        if key in options.given and not any(arm.options.get(key) == str(value) for arm in arms):
            is_set = any(key in arm.options for arm in arms)
            of_all = f"no arm among {', '.join(arm.label for arm in arms)} takes a {key}"
            why = f"every arm that takes a {key} sets its own" if is_set else of_all
            raise ValueError(f"{key}: {value!r} has no effect; {why}")
    unused = [key for key in (*PROGRAM_KEYS, *_CLIENT_KEYS) if key in options.given]
    if unused and not any(_takes_program(arm, options) for arm in arms):
        labels = ", ".join(arm.label for arm in arms)
        flag = options.schema()[unused[0]].flag
        raise ValueError(
            f"{flag}: {getattr(options, unused[0])!r} has no effect; no arm among {labels} runs on another engine; "
            "choose it with --engine, or drop it"
        )
    if options.batch_sizes and "max_concurrency" in options.given:
        raise ValueError(
            f"max_concurrency: {options.max_concurrency} has no effect beside batch_sizes {options.batch_sizes!r}; "
            "drop one of the two"
        )
    if "burstiness" in options.given and math.isinf(options.request_rate):
        raise ValueError(f"burstiness: {options.burstiness:g} has no effect without a finite request_rate; drop it")
    for name in unread_lengths(options):
        if name in options.given:
            value, data = getattr(options, name), options.dataset_name
            raise ValueError(f"{name}: {value} has no effect on {data}; allowed with dataset_name random")
    if options.temperature_grid and "temperature" in options.given:
        raise ValueError(
            f"temperature: {options.temperature:g} has no effect beside temperature_grid "
            f"{list(options.temperature_grid)}; add it to the grid, or drop it"
        )
    return RunConfig.of_arms(options, [without_program(arm, options) for arm in arms])


def unread_lengths(conditions: Conditions) -> tuple[str, ...]:
    """--random-input-len and the like, if no data set may read them: of ours, only one does."""
    for name in conditions.workload.names:
        if name == "random" or not WORKLOADS.get(name, "").startswith("specbench."):
            return ()
    return LENGTHS


def _takes_program(arm: ArmConfig, options: Conditions) -> bool:
    return lookup(ENGINES, arm.engine_name or options.engine, "engine").takes_program


def without_program(arm: ArmConfig, options: Conditions) -> ArmConfig:
    """The arm without options that name another engine's program, if its engine needs none."""
    if _takes_program(arm, options):
        return arm
    unused = {key for key in PROGRAM_KEYS if getattr(options, key) is not None}
    return replace(arm, engine={key: value for key, value in arm.engine.items() if key not in unused})


def named_arm(text: str, options: RunOptions) -> ArmConfig:
    """A strategy argument under the switches of all arms."""
    switches = options.switches
    return with_measured_rates(parse_arm(with_own_keys(text, switches), switches.engine))


def default_strategies(conditions: Conditions) -> list[str]:
    """Arms to run if the user names none, including a shipped head if there is one for the model."""
    has_head = default_head(conditions) != ""
    return list(lookup(ENGINES, conditions.engine, "engine").default_arms(has_head))


def recipe_arms(recipe: Recipe, options: RunOptions, check: CheckArm) -> tuple[list[ArmConfig], RecipeRecord]:
    """The recipe's arms, or those of the options in their place, under the options' switches, with their rows.

    Rows whose arms are the same under the switches share one arm, and a note says so.
    """
    switches, requested = options.switches, recipe.arms
    if not (options.strategy or requested):
        raise ValueError(f"recipe {recipe.name}: arm: none is given; allowed: one or more [[arm]], or --strategy")
    if options.strategy:
        texts = [with_own_keys(text, switches) for text in options.strategy]
        requested = tuple(RecipeArm(arm=parse_arm(text), baseline=n == 0) for n, text in enumerate(texts))
    arms = [with_measured_rates(with_switches(each.arm, switches)) for each in requested]
    measured, rows, notes = [], [], []
    for each, arm, shared in zip(requested, arms, first_of_same(arms, options, check), strict=True):
        rows.append(RecipeRow(name=arm.label, label=shared.label, baseline=each.baseline, claim=each.claim))
        if shared is arm:
            measured.append(arm)
        else:
            notes.append(f"{arm.label}: the same as {shared.label} with these switches; measured once")
    record = RecipeRecord(
        name=recipe.name, sha256=recipe.sha256, report=recipe.report, rows=tuple(rows), notes=tuple(notes)
    )
    return measured, record
