"""Which arms a run measures: those named, a recipe's, or a base with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench.harness.registry import default_arms
from specbench.workloads.assets.shipped_heads import shipped_names

from .ablation import factor_notes, factor_rows, parse_factors
from .arm import STRATEGY_KEYS, ArmConfig, parse_arm, with_own_keys
from .measured_acceptance import find_measured, with_measured_rates
from .options import Conditions, RunOptions
from .recipe_files import Base, Recipe
from .run_config import RunConfig
from .table_records import Ablation, AblationRow, RecipeRecord, RecipeRow
from .variant import CheckArm, Variant, measured_once, with_switches


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """`config` with its arms; `batch_sizes` to run it at; `recipe`, `ablation`: the table it is
    for. `acceptance`: where forced acceptance that was measured comes from."""

    config: RunConfig
    batch_sizes: tuple[int, ...]
    recipe: RecipeRecord | None = None
    ablation: Ablation | None = None
    acceptance: str = ""


def plan_run(options: RunOptions, check: CheckArm) -> RunPlan:
    """Raises ValueError for options that exclude each other, and for arms that cannot be read."""
    if options.factor and options.base is None:
        raise ValueError("factor: needs --base, the arm that one thing is changed of")
    recipe, ablation = None, None
    if isinstance(options.file, Base):
        if options.strategy:
            raise ValueError("strategy: --base brings its own arm; drop --strategy, or change the base with --factor")
        arms, ablation = _base_arms(options, options.file, check)
    elif isinstance(options.file, Recipe):
        arms, recipe = _recipe_arms(options, options.file)
    else:
        arms = [named_arm(text, options) for text in options.strategy or default_strategies(options)]
    return RunPlan(
        config=plan_config(options, arms),
        batch_sizes=options.sizes,
        recipe=recipe,
        ablation=ablation,
        acceptance=acceptance_note(options),
    )


def acceptance_note(options: RunOptions) -> str:
    """Where measured acceptance comes from; empty for any other."""
    found = find_measured(options.acceptance)
    return "" if found is None else found.note


def plan_config(options: RunOptions, arms: Sequence[ArmConfig]) -> RunConfig:
    """These arms under the options. ValueError for an option of strategies that concerns none of them."""
    for key in STRATEGY_KEYS:
        if key in options.given and not any(key in arm.options for arm in arms):
            labels = ", ".join(arm.label for arm in arms)
            raise ValueError(f"{key}: {getattr(options, key)!r} has no effect; no arm among {labels} takes a {key}")
    return RunConfig.of_arms(options, arms)


def named_arm(text: str, options: RunOptions) -> ArmConfig:
    """A strategy argument under the switches of all arms."""
    switches = options.switches
    return with_measured_rates(parse_arm(with_own_keys(text, switches), switches.engine))


def default_strategies(conditions: Conditions) -> list[str]:
    """Arms where the user names none; a trained head takes part where one for this asset comes with the package."""
    return default_arms(has_head=conditions.load_format == "auto" and conditions.model in shipped_names())


def _recipe_arms(options: RunOptions, recipe: Recipe) -> tuple[list[ArmConfig], RecipeRecord]:
    rows = list(recipe.rows)
    if options.strategy or not rows:
        texts = [with_own_keys(t, options.switches) for t in options.strategy or default_strategies(options)]
        rows = [Variant(label=text, arm=parse_arm(text), baseline=n == 0) for n, text in enumerate(texts)]
    rows, notes = measured_once([with_switches(row, options.switches) for row in rows])
    described = RecipeRecord(
        name=recipe.name,
        sha256=recipe.sha256,
        report=recipe.report,
        rows=tuple(RecipeRow(name=r.label, label=r.the_arm.label, baseline=r.baseline, claim=r.claim) for r in rows),
        notes=tuple(notes),
    )
    arms = {id(row.arm): row.the_arm for row in rows}.values()
    return [with_measured_rates(arm) for arm in arms], described


def _base_arms(options: RunOptions, base: Base, check: CheckArm) -> tuple[list[ArmConfig], Ablation]:
    factors = parse_factors(options.factor) if options.factor else base.factors
    rows = factor_rows(base, factors, options.switches, check)
    described = Ablation(
        base=base.name,
        summary=base.summary,
        rows=tuple(
            AblationRow(switch=r.switch, value=r.value, label=r.label if r.arm else None, refused=r.refused)
            for r in rows
        ),
        notes=tuple(factor_notes(rows)),
    )
    return [row.arm for row in rows if row.arm is not None], described
