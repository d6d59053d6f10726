"""Bases: the arms that one thing at a time is changed of, stored in recipes/bases.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .arm_tables import ArmRow, read_arm
from .recipe_files import FOLDER, OptionTypes, check_options, read_toml

_PATH = FOLDER / "bases.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """A base arm, the run it is measured in, and the switches that are tried where none are named."""

    name: str
    summary: str
    row: ArmRow
    run: dict[str, Any]
    factors: dict[str, tuple[str, ...]]


def base_summaries() -> dict[str, str]:
    """All bases with a line each."""
    return {name: table["summary"] for name, table in read_toml(_PATH, "base")[1]["base"].items()}


def load_base(name: str, options: OptionTypes) -> Base:
    """ValueError with the known names for an unknown one."""
    raw = read_toml(_PATH, "base")[1]
    if name not in raw["base"]:
        raise ValueError(f"base: {name!r} is not known; allowed: {', '.join(raw['base'])}")
    check_options(raw["run"], options, f"base {name}")
    table = dict(raw["base"][name])
    summary = table.pop("summary")
    row = read_arm({**table, "label": name}, f"base {name}")
    factors = {switch: tuple(values) for switch, values in raw["factors"].items()}
    return Base(name=name, summary=summary, row=row, run=raw["run"], factors=factors)
