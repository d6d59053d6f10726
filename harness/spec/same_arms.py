"""Arms that are spelled differently and are the same: an alias, or a default that is spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specbench.harness.registry import ENGINES, STRATEGIES, lookup, strategy_class
from specbench.workloads.assets.shipped_heads import PREFIX, shipped_folder, shipped_names

from .arm import ArmConfig, CheckArm
from .conditions import Conditions


def check_different(arms: Sequence[ArmConfig], conditions: Conditions, check: CheckArm) -> None:
    """ValueError if two arms, whose labels are what the user typed, would measure the same."""
    for arm, first in zip(arms, first_of_same(arms, conditions, check), strict=True):
        if first is not arm:
            how = "is given twice" if first.label == arm.label else f"gives the same arm as {first.label!r}"
            raise ValueError(f"strategy: {arm.label!r} {how}; every arm must differ")


def first_of_same(arms: Sequence[ArmConfig], conditions: Conditions, check: CheckArm) -> list[ArmConfig]:
    """For each arm the first one that would measure the same, which may be itself. Arms that cannot run are left to
    their own error."""
    found: list[ArmConfig] = []
    known: list[tuple[object, ArmConfig]] = []
    for arm in arms:
        identity = _identity(arm, conditions, check)
        first = next((earlier for other, earlier in known if other == identity), arm)
        known.append((identity, first))
        found.append(first)
    return found


def default_head(conditions: Conditions) -> str:
    """The head of an arm that names none, as `shipped:NAME`; empty where only the loaded model tells, or none ships."""
    is_shipped = conditions.load_format == "auto" and conditions.model in shipped_names()
    return f"{PREFIX}{conditions.model}" if is_shipped else ""


def _identity(arm: ArmConfig, conditions: Conditions, check: CheckArm) -> object:
    """What distinguishes an arm. The defaults of another program are not known before it runs."""
    engine = arm.engine_name or conditions.engine
    as_given = (engine, arm.strategy, arm.options, arm.engine)
    try:
        if arm.strategy not in STRATEGIES or lookup(ENGINES, engine, "engine").takes_program:
            return as_given
        strategy, setup = strategy_class(arm.strategy).of(_with_folder(arm, conditions)), check(arm).setup()
    except ValueError:
        return as_given
    return engine, strategy, replace(setup, options={}), arm.own_config


def _with_folder(arm: ArmConfig, conditions: Conditions) -> dict[str, str]:
    """The arm's options, with its head as a whole path if it is on this disk."""
    kind, head = strategy_class(arm.strategy), arm.options.get("head", "")
    if kind.takes_head and not kind.one_pass:
        head = head or default_head(conditions)
    folder = shipped_folder(head) if head.startswith(PREFIX) else Path(head).expanduser()
    return {**arm.options, "head": str(folder.resolve())} if head and folder.is_dir() else arm.options
