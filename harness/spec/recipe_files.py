"""Recipes: comparisons stored as TOML files, each repeated by one command.

    summary = "one line for `specbench list`"
    [run]       # options of `specbench run` by name: model, dataset_name, num_prompts, ...
    [[arm]]     # one or more: strategy, any key of a strategy argument; label, baseline, claim for the table
    [report]    # title, columns, claim (source, hardware, setup), notes

`specbench run --recipe NAME` runs one that ships with specbench, `--recipe PATH` a user's own. Options given on the
command line replace the recipe's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specbench.harness.text import nearest
from specbench.workloads.guarded import parse_toml, read_text

from .arm import ArmConfig, arm_key, parse_arm, with_pairs
from .fields import Option, Value, checked_table
from .spellings import check_keys, check_renamed_file

FOLDER = Path(__file__).with_name("recipes")
_BASES = FOLDER / "bases.toml"  # the base arms of ablations
_OF_ROW: dict[str, type] = {"label": str, "baseline": bool, "claim": dict}
_TOP = ("summary", "run", "arm", "report")
_REPORT: dict[str, type] = {"title": str, "columns": list, "notes": list, "claim": dict}
_CLAIM = ("source", "hardware", "setup")


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a recipe's table shows: columns by name (run/recipe_table.py), the source's claim, and why figures
    differ."""

    title: str = ""
    columns: tuple[str, ...] = ()
    claim: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeArm:
    """`baseline`: whether the rows below are compared with it. `claim`: what the recipe's source claims for this
    arm."""

    arm: ArmConfig
    baseline: bool = False
    claim: dict[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A recipe as read. `run`: options of the command; `sha256`: of the file."""

    name: str
    sha256: str
    summary: str
    run: dict[str, Value]
    arms: tuple[RecipeArm, ...]
    report: Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """A base arm, the run that measures it, and the switches to ablate by default."""

    name: str
    summary: str
    arm: ArmConfig
    run: dict[str, Value]
    ablations: dict[str, tuple[str, ...]]


def recipe_names() -> list[str]:
    """Recipes that ship with the package."""
    return sorted(path.stem for path in FOLDER.glob("*-pr-*.toml"))


def recipe_summaries() -> dict[str, str]:
    """Recipes that ship with the package, with a one-line summary each."""
    return {name: read_toml(FOLDER / f"{name}.toml", "recipe")[1]["summary"] for name in recipe_names()}


def load_recipe(name: str, options: Mapping[str, Option]) -> Recipe:
    """Reads a recipe, by its name or by the path of a file. `options`: those that its table [run] may set.

    Raises ValueError for an unknown name, a file that is not TOML, an unknown key or a value of the wrong type.
    """
    check_renamed_file("recipe", name)
    path = FOLDER / f"{name}.toml" if name in recipe_names() else Path(name)
    if path.suffix != ".toml" or not path.is_file():
        hint = nearest(name, recipe_names())
        raise ValueError(f"recipe: {name!r} is not known{hint}; allowed: {', '.join(recipe_names())}, or a .toml file")
    text, raw = read_toml(path, "recipe")
    where = f"recipe {name}"
    check_keys(raw, _TOP, where)
    run = checked_table(_table(raw, "run", where), options, f"{where}: run")
    arms = raw.get("arm", [])
    if not isinstance(arms, list) or not all(isinstance(arm, dict) for arm in arms):
        raise ValueError(f"{where}: arm: {arms!r} is not allowed; allowed: [[arm]] tables")
    return Recipe(
        name=name,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        summary=str(raw.get("summary", "")),
        run=run,
        arms=tuple(_read_arm(arm, f"{where}: arm {number}") for number, arm in enumerate(arms, 1)),
        report=_read_report(_table(raw, "report", where), where),
    )


def base_summaries() -> dict[str, str]:
    """All bases, with a one-line summary each."""
    return {name: table["summary"] for name, table in read_toml(_BASES, "base")[1]["base"].items()}


def load_base(name: str, options: Mapping[str, Option]) -> Base:
    """Reads a base. ValueError, listing the known names, for an unknown one."""
    raw = read_toml(_BASES, "base")[1]
    check_renamed_file("base", name)
    if name not in raw["base"]:
        raise ValueError(f"base: {name!r} is not known; allowed: {', '.join(raw['base'])}")
    run = checked_table(raw["run"], options, f"base {name}: run")
    table = dict(raw["base"][name])
    summary = table.pop("summary")
    arm = _read_arm({**table, "label": name}, f"base {name}").arm
    ablations = {switch: tuple(values) for switch, values in raw["ablations"].items()}
    return Base(name=name, summary=summary, arm=arm, run=run, ablations=ablations)


def read_toml(path: Path, field_name: str) -> tuple[str, dict[str, Any]]:
    """The file's text and its parsed content. ValueError naming a file that is not TOML."""
    try:
        text = read_text(path)
        return text, parse_toml(text)
    except ValueError as error:
        raise ValueError(f"{field_name}: {path} is not valid TOML: {error}") from error


def _table(raw: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {key}: {value!r} is not allowed; allowed: a table [{key}]")
    return value


def _read_arm(table: Mapping[str, Any], where: str) -> RecipeArm:
    """Reads the TOML table of an arm: `strategy`, any key of a strategy argument, and what the results table shows.

    Raises ValueError naming `where`, the key, its value and what is allowed.
    """
    strategy = table.get("strategy")
    if not isinstance(strategy, str) or not strategy:
        raise ValueError(f"{where}: strategy: {strategy!r} is not allowed; allowed: a strategy argument as text")
    pairs: list[str] = []
    of_row: dict[str, Any] = {}
    for key, value in table.items():
        if key in _OF_ROW:
            if not isinstance(value, _OF_ROW[key]):
                raise ValueError(f"{where}: {key}: {value!r} is not allowed; allowed: a {_OF_ROW[key].__name__}")
            of_row[key] = value
        elif key != "strategy":
            if type(value) not in (str, int, float) or "," in str(value) or value == "":
                raise ValueError(
                    f"{where}: {key}: {value!r} is not allowed; allowed: text without a comma, or a number"
                )
            pairs.append(f"{arm_key(key)}={value}")
    for key, value in of_row.get("claim", {}).items():
        if not isinstance(value, (str, int, float)):
            raise ValueError(f"{where}: claim.{key}: {value!r} is not allowed; allowed: a number or text")
    arm = parse_arm(with_pairs(strategy, pairs))
    return RecipeArm(arm=replace(arm, label=of_row.pop("label", arm.label)), **of_row)


def _read_report(raw: Mapping[str, Any], where: str) -> Report:
    check_keys(raw, tuple(_REPORT), f"{where}: report")
    for key, value in raw.items():
        texts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
        if not isinstance(value, _REPORT[key]) or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{where}: report.{key}: {value!r} is not allowed; allowed: {_REPORT[key].__name__} of text"
            )
    check_keys(raw.get("claim", {}), _CLAIM, f"{where}: report.claim")
    values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in raw.items()}
    return Report(**values)
