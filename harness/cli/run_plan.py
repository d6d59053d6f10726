"""Which arms `specbench run` measures: those named with --strategy, a recipe's, or a base with its factors."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from specbench.harness.run_config import ENGINE_KEYS, ArmConfig, parse_arm

if typing.TYPE_CHECKING:
    from specbench.harness.arm_tables import ArmRow
    from specbench.harness.recipe_files import OptionTypes

_NOT_IN_FILES = frozenset(
    "strategy recipe base factor batch_sizes resume as_json quiet output_dir label ctx".split()
)  # what a recipe cannot say


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """`arms` to measure; `record` goes into run.json beside them and says what tables to make."""

    arms: tuple[ArmConfig, ...]
    record: dict[str, Any]


def option_types(command: Callable[..., None]) -> OptionTypes:
    """Options that a recipe may give, with the types of their values, from the command's own signature."""
    hints = typing.get_type_hints(command)
    return {name: _plain(hint) for name, hint in hints.items() if name not in _NOT_IN_FILES and name != "return"}


def _plain(hint: Any) -> tuple[type, ...]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(kind for part in typing.get_args(hint) if part is not type(None) for kind in _plain(part))
    if hint is Path:
        return (str,)
    return (typing.get_origin(hint) or hint,)


def is_typed(ctx: typer.Context, name: str) -> bool:
    """Whether the user gave this option, rather than a file or a default."""
    return getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"


def check_alone(ctx: typer.Context, kept: Sequence[str], thing: str) -> None:
    """What is resumed has its own options: any other given beside --resume would be ignored, so it is refused."""
    options = {parameter.name: parameter.opts[0] for parameter in ctx.command.params}
    given = [options[name] for name in ctx.params if name not in kept and is_typed(ctx, name)]
    if given:
        raise ValueError(f"resume: {thing} goes on with its own options; drop {', '.join(given)}")


def parse_batch_sizes(text: str | None) -> list[int]:
    """`1,8,64`; nothing for None. ValueError for anything but different whole numbers."""
    words = text.split(",") if text is not None else []
    if any(not word.strip().isdigit() or int(word) < 1 for word in words) or len({*map(int, words)}) < len(words):
        raise ValueError(f"batch_sizes: {text!r} is not allowed; allowed: different numbers >= 1, as 1,8,64")
    return [int(word) for word in words]


def use_file(ctx: typer.Context, recipe: str | None, base: str | None) -> None:
    """Makes the options of a recipe or base the defaults of the command, before the others are read."""
    from .run import run

    if recipe is not None:
        from specbench.harness.recipe_files import load_recipe

        ctx.default_map = {**(ctx.default_map or {}), **load_recipe(recipe, option_types(run)).run}
    if base is not None:
        from specbench.harness.base_files import load_base

        ctx.default_map = {**(ctx.default_map or {}), **load_base(base, option_types(run)).run}


def on_recipe(ctx: typer.Context, value: str | None) -> str | None:
    use_file(ctx, value, None)
    return value


def on_base(ctx: typer.Context, value: str | None) -> str | None:
    use_file(ctx, None, value)
    return value


def default_strategies(model: str, load_format: str) -> list[str]:
    """Arms where the user names none; a trained head takes part where one for this asset comes with the package."""
    from specbench.harness.models.shipped_heads import shipped_names

    has_head = load_format == "auto" and model in shipped_names()
    return ["no-spec", "ngram", *(["eagle:k=4"] if has_head else [])]


def make_plan(ctx: typer.Context, strategies: Sequence[str]) -> RunPlan:
    """The arms of the command. `strategies`: arms as text where neither a recipe nor a base gives them.

    Raises ValueError for options that exclude each other, and for arms that cannot be read.
    """
    options = ctx.params
    recipe, base = options["recipe"], options["base"]
    if recipe is not None and base is not None:
        raise ValueError("base: --recipe and --base exclude each other")
    if base is None and options["factor"]:
        raise ValueError("factor: needs --base, the arm that one thing is changed of")
    if base is not None:
        if options["strategy"]:
            raise ValueError("strategy: --base brings its own arm; drop --strategy, or change the base with --factor")
        return _base_plan(ctx, base)
    if recipe is not None:
        return _recipe_plan(ctx, recipe, strategies)
    return plain_plan(ctx, strategies)


def plain_plan(ctx: typer.Context, strategies: Sequence[str]) -> RunPlan:
    """Arms as text under the command's switches, neither a recipe's nor a base's."""
    defaults, given = _switches(ctx)
    arms = [parse_arm(text, _engine({**defaults, **given})) for text in strategies]
    return _with_rates(arms, {}, given.get("acceptance"))


def _switches(ctx: typer.Context) -> tuple[dict[str, str], dict[str, str]]:
    """Switches for all arms (and `head`): from a file or by default, and as typed."""
    values = {name: str(v) for name, v in ctx.params.items() if name in (*ENGINE_KEYS, "head") and v is not None}
    typed = {name for name in values if is_typed(ctx, name)}
    return {n: v for n, v in values.items() if n not in typed}, {n: values[n] for n in typed}


def _engine(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key in ENGINE_KEYS}


def _with_rates(arms: Sequence[ArmConfig], record: dict[str, Any], acceptance: str | None) -> RunPlan:
    """Measured acceptance written out; what it is, beside the table's own notes."""
    from specbench.harness.measured_acceptance import find_measured, with_measured_rates

    found = find_measured(acceptance)
    if found is not None:
        record = {**record, "acceptance": found.note}
    return RunPlan(arms=tuple(with_measured_rates(arm) for arm in arms), record=record)


def _recipe_plan(ctx: typer.Context, name: str, strategies: Sequence[str]) -> RunPlan:
    from specbench.harness.arm_tables import measured_once, with_switches
    from specbench.harness.recipe_files import load_recipe
    from specbench.reports.seed_table import check_columns

    from .run import run

    recipe = load_recipe(name, option_types(run))
    check_columns(recipe.report.columns)
    defaults, given = _switches(ctx)
    own = not ctx.params["strategy"] and recipe.rows
    rows = list(recipe.rows) if own else _rows_of(strategies)
    rows, notes = measured_once([with_switches(row, defaults, given) for row in rows])
    described = {
        "name": recipe.name,
        "sha256": recipe.sha256,
        "report": dataclasses.asdict(recipe.report),
        "rows": [dict(name=r.name, label=r.arm.label, baseline=r.baseline, claim=r.claim) for r in rows],
        "notes": notes,
    }
    arms = {id(row.arm): row.arm for row in rows}.values()
    return _with_rates(list(arms), {"recipe": described}, {**defaults, **given}.get("acceptance"))


def _rows_of(strategies: Sequence[str]) -> list[ArmRow]:
    from specbench.harness.arm_tables import ArmRow

    arms = [parse_arm(text, {}) for text in strategies]
    return [ArmRow(name=arm.label, arm=arm, baseline=number == 0) for number, arm in enumerate(arms)]


def _base_plan(ctx: typer.Context, name: str) -> RunPlan:
    from specbench.harness.base_files import load_base
    from specbench.harness.factors import factor_rows, parse_factors
    from specbench.harness.run.target import pick_device

    from .run import run

    base = load_base(name, option_types(run))
    factors = parse_factors(ctx.params["factor"]) if ctx.params["factor"] else base.factors
    defaults, given = _switches(ctx)
    device = pick_device(ctx.params["device"]).type
    rows = factor_rows(base, factors, defaults, given, device, ctx.params["load_format"] == "dummy")
    described = {
        "base": base.name,
        "summary": base.summary,
        "rows": [
            dict(switch=r.switch, value=r.value, label=r.arm.label if r.arm else None, refused=r.refused) for r in rows
        ],
    }
    arms = [row.arm for row in rows if row.arm is not None]
    return _with_rates(arms, {"factors": described}, {**defaults, **given}.get("acceptance"))
