"""Arms that are spelled differently and are the same: an alias, or a default that is spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench.harness.registry import ENGINES, STRATEGIES, lookup, strategy_class

from .arm import ArmConfig, CheckArm
from .conditions import Conditions


def check_different(arms: Sequence[ArmConfig], conditions: Conditions, check: CheckArm) -> None:
    """ValueError if two arms would measure the same. Arms that cannot run are left to their own error."""
    known: list[tuple[str, object]] = []
    for arm in arms:
        identity = _identity(arm, conditions, check)
        twin = next((label for label, other in known if other == identity), None)
        if twin is not None:
            how = "is given twice" if twin == arm.label else f"is the same arm as {twin!r}"
            raise ValueError(f"strategy: {arm.label!r} {how}; every arm must differ")
        known.append((arm.label, identity))


def _identity(arm: ArmConfig, conditions: Conditions, check: CheckArm) -> object:
    """What distinguishes an arm. The defaults of another program are not known before it runs."""
    engine = arm.engine_name or conditions.engine
    as_given = (engine, arm.strategy, arm.options, arm.engine)
    try:
        if arm.strategy not in STRATEGIES or lookup(ENGINES, engine, "engine").takes_program:
            return as_given
        strategy, setup = strategy_class(arm.strategy).of(arm.options), check(arm).setup()
    except ValueError:
        return as_given
    return engine, strategy, replace(setup, options={}), arm.own_config
