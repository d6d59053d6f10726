"""Recipes: a comparison as a TOML file, so that one command repeats it.

    summary = "one line for `specbench list`"
    [run]       # options of `specbench run` by name: model, dataset_name, num_prompts, ...
    [[arm]]     # strategy, any key of a strategy argument; label, baseline, claim for the table
    [report]    # title, columns, claim (source, hardware, setup), notes

`specbench run --recipe NAME` runs one that ships here, `--recipe PATH` a user's own. Options given on the command line
replace the recipe's.
"""

from __future__ import annotations

import difflib
import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .arm_tables import ArmRow, read_arm

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).with_name("recipes")
_TOP = ("summary", "run", "arm", "report")
_REPORT: dict[str, type] = {"title": str, "columns": list, "notes": list, "claim": dict}
_CLAIM = ("source", "hardware", "setup")

OptionTypes = Mapping[str, tuple[type, ...]]
"""Options of the command by name, with the types that their values may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a recipe's table shows: columns by name (reports/seed_table.py), the source's claim, why figures differ."""

    title: str = ""
    columns: tuple[str, ...] = ()
    claim: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A recipe as read; `run` holds options of the command, `sha256` is the file's."""

    name: str
    sha256: str
    summary: str
    run: dict[str, Any]
    rows: tuple[ArmRow, ...]
    report: Report


def recipe_names() -> list[str]:
    """Recipes that ship with the package."""
    return sorted(path.stem for path in FOLDER.glob("seed-*.toml"))


def recipe_summaries() -> dict[str, str]:
    """Recipes that ship with the package, with a line each."""
    return {name: read_toml(FOLDER / f"{name}.toml", "recipe")[1]["summary"] for name in recipe_names()}


def load_recipe(name: str, options: OptionTypes) -> Recipe:
    """A recipe by its name or by the path of a file.

    Raises ValueError for an unknown name, a file that is no TOML, an unknown key or a value of the wrong type.
    """
    path = FOLDER / f"{name}.toml" if name in recipe_names() else Path(name)
    if path.suffix != ".toml" or not path.is_file():
        near = difflib.get_close_matches(name, recipe_names(), n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"recipe: {name!r} is not known{hint}; allowed: {', '.join(recipe_names())}, or a .toml file")
    text, raw = read_toml(path, "recipe")
    where = f"recipe {name}"
    check_keys(raw, _TOP, where)
    run = checked_table(raw, "run", where)
    check_options(run, options, where)
    arms = raw.get("arm", [])
    if not isinstance(arms, list) or not all(isinstance(arm, dict) for arm in arms):
        raise ValueError(f"{where}: arm: {arms!r} is not allowed; allowed: [[arm]] tables")
    return Recipe(
        name=name,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        summary=str(raw.get("summary", "")),
        run=run,
        rows=tuple(read_arm(arm, f"{where}: arm {number}") for number, arm in enumerate(arms, 1)),
        report=_read_report(checked_table(raw, "report", where), where),
    )


def read_toml(path: Path, field_name: str) -> tuple[str, dict[str, Any]]:
    """Text and content. ValueError naming the file where it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{field_name}: {path} is not valid TOML: {error}") from error


def check_keys(table: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key, value in table.items():
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"{where}: unknown key {key!r} = {value!r}{hint}; allowed: {', '.join(allowed)}")


def checked_table(raw: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {key}: {value!r} is not allowed; allowed: a table [{key}]")
    return value


def check_options(run: Mapping[str, Any], options: OptionTypes, where: str) -> None:
    """ValueError for a key that is no option of the command, or a value that the option cannot hold."""
    check_keys(run, tuple(options), f"{where}: run")
    for key, value in run.items():
        kinds = options[key]
        is_number = float in kinds and isinstance(value, int) and not isinstance(value, bool)
        if not is_number and type(value) not in kinds:
            allowed = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{where}: run.{key}: {value!r} is not allowed; allowed: {allowed}")


def _read_report(raw: Mapping[str, Any], where: str) -> Report:
    check_keys(raw, tuple(_REPORT), f"{where}: report")
    for key, value in raw.items():
        texts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
        if not isinstance(value, _REPORT[key]) or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{where}: report.{key}: {value!r} is not allowed; allowed: {_REPORT[key].__name__} of text"
            )
    check_keys(raw.get("claim", {}), _CLAIM, f"{where}: report.claim")
    return Report(
        title=raw.get("title", ""),
        columns=tuple(raw.get("columns", ())),
        claim=dict(raw.get("claim", {})),
        notes=tuple(raw.get("notes", ())),
    )
