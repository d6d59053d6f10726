"""One thing at a time: a base arm, and for each switch one arm for each other value, all else as in the base.

What the legality table refuses beside the base's other switches is a row that says so. Nothing is changed along with
the switch to make it legal: that row would be about two things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .arm_tables import with_switches
from .arms import resolve_arm
from .base_files import Base
from .engine.legality import ALLOWED, PART_MODES
from .engine.plans import PLANS, parse_plan
from .measured_acceptance import with_measured_rates
from .recipe_files import check_keys
from .registry import STRATEGIES
from .run_config import ArmConfig

_COUNTS = ("k", "status_lag")  # whole numbers: switches without a list of values

Factors = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class FactorRow:
    """One row of the table: `arm` is None where `refused` says why it cannot run. The base has no switch."""

    switch: str
    value: str
    arm: ArmConfig | None
    refused: str = ""


def parse_factors(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`sync=multi,single` each. ValueError for a switch or a value that is not known."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        switch, equals, body = text.partition("=")
        values = tuple(filter(None, body.split(",")))
        if not equals or not values:
            raise ValueError(f"factor: {text!r} is not switch=value,value,...")
        if switch in found:
            raise ValueError(f"factor: {switch} is given twice")
        _check_values(switch, values)
        found[switch] = values
    return found


def _check_values(switch: str, values: Sequence[str]) -> None:
    known: dict[str, Sequence[str]] = {**ALLOWED, "strategy": tuple(STRATEGIES)}
    known |= {f"graph_{part}": modes for part, modes in PART_MODES.items()}
    check_keys({switch: ",".join(values)}, (*known, *_COUNTS), "factor")
    for value in values:
        if switch in _COUNTS and not value.isdigit():
            raise ValueError(f"factor: {switch}={value!r} is not a whole number")
        if switch in known and value not in known[switch]:
            raise ValueError(f"factor: {switch}={value!r} is not known; allowed: {', '.join(known[switch])}")


def factor_rows(
    base: Base, factors: Factors, defaults: Mapping[str, str], given: Mapping[str, str], device: str, synthetic: bool
) -> list[FactorRow]:
    """The base's row, then the others. `defaults` and `given` are switches of the command (arm_tables.py).

    Raises ValueError where the base itself is refused.
    """
    row = with_switches(base.row, defaults, given)
    first = with_measured_rates(row.arm)
    try:
        resolve_arm(first, device, synthetic)
    except ValueError as error:
        raise ValueError(f"base {row.name}: {error}") from error
    rows = [FactorRow(switch="base", value=base.name, arm=first)]
    for switch, values in factors.items():
        current = _current(row.arm, switch)
        rows += [_variant(row.arm, switch, value, device, synthetic) for value in values if value != current]
    return rows


def _current(arm: ArmConfig, switch: str) -> str | None:
    """What the base has there; a part of a graph plan has its whole plan's mode, which the plan's own row shows."""
    if switch == "strategy":
        return arm.strategy
    if switch.startswith("graph_") and switch not in arm.engine:
        return _mode_of_part(arm.engine.get("graph"), switch.removeprefix("graph_"))
    if switch == "attention_drafter" and arm.engine.get(switch, "same") == "same":
        return arm.engine.get("attention")
    return arm.engine.get(switch, arm.options.get(switch))


def _mode_of_part(plan: str | None, part: str) -> str | None:
    return None if plan is None or plan.lower() not in PLANS else getattr(parse_plan(plan, {}), part)


def _variant(arm: ArmConfig, switch: str, value: str, device: str, synthetic: bool) -> FactorRow:
    if switch == "strategy":
        changed = replace(arm, strategy=value)
    elif switch in arm.options or switch == "k":
        changed = replace(arm, options={**arm.options, switch: value})
    else:
        changed = replace(arm, engine={**arm.engine, switch: value})
    changed = replace(changed, label=f"{arm.label} {switch}={value}")
    try:
        changed = with_measured_rates(changed)
        resolve_arm(changed, device, synthetic)
    except ValueError as error:
        return FactorRow(switch=switch, value=value, arm=None, refused=_reason(error))
    return FactorRow(switch=switch, value=value, arm=changed)


def _reason(error: ValueError) -> str:
    """Without the list of everything that was resolved; the row itself says that it is refused."""
    return str(error).partition(" (resolved: ")[0].replace(" is refused: ", ": ", 1)
