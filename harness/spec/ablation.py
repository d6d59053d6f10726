"""An ablation: a base arm, and one arm for each other value of each switch, with everything else as in the base.

A combination that the legality table refuses becomes a row that says so. No second switch is changed to make it legal,
because that row would mix two effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from specbench.harness.registry import STRATEGIES, declared_strategies

from .arm import ArmConfig, CheckArm, Switches, own_keys, with_switches
from .choices import ALLOWED, PART_MODES, allowed
from .legality import Refused
from .measured_acceptance import with_measured_rates
from .plans import PLANS, plan_name
from .recipe_files import Base
from .spellings import check_keys
from .table_records import Ablation, AblationRow

_COUNTS = ("k", "status_lag")  # switches that take whole numbers instead of listed values


def parse_ablations(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parses texts such as `sync=multi,single`. ValueError for an unknown switch or value."""
    values_by_switch: dict[str, tuple[str, ...]] = {}
    for text in texts:
        switch, equals, body = text.partition("=")
        values = tuple(filter(None, body.split(",")))
        if not equals or not values:
            raise ValueError(f"ablate: {text!r} is not switch=value,value,...")
        if switch in values_by_switch:
            raise ValueError(f"ablate: {switch} is given twice")
        _check_values(switch, values)
        values_by_switch[switch] = values
    return values_by_switch


def _check_values(switch: str, values: Sequence[str]) -> None:
    known: dict[str, Sequence[str]] = {**{name: allowed(name) for name in ALLOWED}, "strategy": tuple(STRATEGIES)}
    known |= {f"graph_{part}": modes for part, modes in PART_MODES.items()}
    check_keys({switch: ",".join(values)}, (*known, *_COUNTS), "ablate")
    for value in values:
        if switch in _COUNTS and not value.isdigit():
            raise ValueError(f"ablate: {switch}={value!r} is not a whole number")
        if switch in known and value not in known[switch]:
            raise ValueError(f"ablate: {switch}={value!r} is not known; allowed: {', '.join(known[switch])}")


def ablate(
    base: Base, values: Mapping[str, Sequence[str]], switches: Switches, check: CheckArm
) -> tuple[list[ArmConfig], Ablation]:
    """The base arm and one arm for each of the `values` of a switch, under the command's switches, with their rows.

    Raises ValueError if the base is refused.
    """
    requested = with_switches(base.arm, switches)
    arm = with_measured_rates(requested)
    try:
        check(arm)
    except ValueError as error:
        raise ValueError(f"base {arm.label}: {error}") from error
    arms, rows = [arm], [AblationRow(switch="base", value=base.name, label=arm.label)]
    for switch, value in ((switch, value) for switch, several in values.items() for value in several):
        if value == _current(requested, switch):
            continue
        row = AblationRow(switch=switch, value=value)
        try:
            arm = with_measured_rates(_with_value(requested, switch, value))
            check(arm)
        except Refused as error:
            rows.append(replace(row, refused=f"{error.rule}: {error.reason}"))
        except ValueError as error:
            rows.append(replace(row, refused=str(error)))
        else:
            arms.append(arm)
            rows.append(replace(row, label=arm.label))
    return arms, Ablation(base=base.name, summary=base.summary, rows=tuple(rows), notes=tuple(_notes(rows)))


def _notes(rows: Sequence[AblationRow]) -> list[str]:
    """Notes for the reader about strategies that run the same round."""
    named = {row.value for row in rows if row.switch == "strategy"}
    return [
        f"strategy: with the graph plan given, {kind.same_rounds_as} and {kind.name} run the same round; the row shows "
        "noise."
        for kind in declared_strategies()
        if kind.same_rounds_as and {kind.name, kind.same_rounds_as} & named
    ]


def _current(arm: ArmConfig, switch: str) -> str | None:
    """The base's value. A part of a graph plan has the mode of the whole plan, which the plan's own row shows."""
    if switch == "strategy":
        return arm.strategy
    plan = plan_name(arm.engine.get("graph", ""))
    if switch.startswith("graph_") and switch not in arm.engine:
        return getattr(PLANS[plan], switch.removeprefix("graph_")) if plan in PLANS else None
    if switch == "graph" and plan:
        return plan
    if switch == "attention_drafter" and arm.engine.get(switch, "same") == "same":
        return arm.engine.get("attention")
    return arm.engine.get(switch, arm.options.get(switch))


def _with_value(arm: ArmConfig, switch: str, value: str) -> ArmConfig:
    arm = replace(arm, label=f"{arm.label} {switch}={value}")
    if switch == "strategy":
        return replace(arm, strategy=value)
    if switch in own_keys(arm.strategy):
        return replace(arm, options={**arm.options, switch: value})
    return replace(arm, engine={**arm.engine, switch: value})
