"""Arms as TOML tables: `strategy` and any key of a strategy argument, beside what a table of results needs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .registry import HEAD_STRATEGIES
from .run_config import GRAPH_PART_KEYS, ArmConfig, parse_arm

_REPORT_KEYS = ("label", "baseline", "claim")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmRow:
    """A row of a recipe's table: the arm that stands in it, whether the rows below are compared with it, and what the
    recipe's source claims for it."""

    name: str
    arm: ArmConfig
    baseline: bool = False
    claim: dict[str, str | float] = field(default_factory=dict)


def read_arm(table: Mapping[str, Any], where: str) -> ArmRow:
    """Raises ValueError naming `where`, the key, its value and what is allowed."""
    strategy = table.get("strategy")
    if not isinstance(strategy, str) or not strategy:
        raise ValueError(f"{where}: strategy: {strategy!r} is not allowed; allowed: a strategy argument as text")
    words = [_word(key, value, where) for key, value in table.items() if key not in ("strategy", *_REPORT_KEYS)]
    text = strategy + ("," if ":" in strategy else ":") * bool(words) + ",".join(words)
    name = _typed(table, "label", str, text, where)
    claim = _typed(table, "claim", dict, {}, where)
    for key, value in claim.items():
        if not isinstance(value, (str, int, float)):
            raise ValueError(f"{where}: claim.{key}: {value!r} is not allowed; allowed: a number or text")
    arm = replace(parse_arm(text, {}), label=name)
    return ArmRow(name=name, arm=arm, baseline=_typed(table, "baseline", bool, False, where), claim=claim)


def _word(key: str, value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or "," in str(value) or value == "":
        raise ValueError(f"{where}: {key}: {value!r} is not allowed; allowed: text without a comma, or a number")
    return f"{key}={value}"


def _typed(table: Mapping[str, Any], key: str, kind: type, default: Any, where: str) -> Any:
    value = table.get(key, default)
    if not isinstance(value, kind):
        raise ValueError(f"{where}: {key}: {value!r} is not allowed; allowed: a {kind.__name__}")
    return value


def with_switches(row: ArmRow, defaults: Mapping[str, str], given: Mapping[str, str]) -> ArmRow:
    """The row under the command's switches: `defaults` where the arm says nothing, `given` whatever it says.

    Both hold engine keys, and `head`, which concerns EAGLE arms only. A switch of the arm's own that `given` replaces
    stands in the label, so that no label says what was not run. A whole plan (`graph`) replaces the arm's parts too.
    """
    arm, options = row.arm, dict(row.arm.options)
    head = given.get("head") or options.get("head") or defaults.get("head")
    if head and arm.strategy in HEAD_STRATEGIES:
        options["head"] = head
    defaults, given = ({k: v for k, v in values.items() if k != "head"} for values in (defaults, given))
    own = {key: value for key, value in arm.engine.items() if "graph" not in given or key not in GRAPH_PART_KEYS}
    changed = [f"{k}={v}" for k, v in given.items() if arm.engine.get(k, v) != v]
    if "graph" in given and len(own) < len(arm.engine) and not any(word.startswith("graph=") for word in changed):
        changed.append(f"graph={given['graph']}")
    label = arm.label + (f" [{','.join(changed)}]" if changed else "")
    engine = {**defaults, **own, **given}
    return replace(row, name=label, arm=replace(arm, label=label, options=options, engine=engine))


def measured_once(rows: Sequence[ArmRow]) -> tuple[list[ArmRow], list[str]]:
    """Rows whose arms switches have made the same share one arm; the second part says which those are."""
    first: dict[tuple, ArmConfig] = {}
    shared, notes = [], []
    for row in rows:
        key = (row.arm.strategy, tuple(sorted(row.arm.options.items())), tuple(sorted(row.arm.engine.items())))
        arm = first.setdefault(key, row.arm)
        if arm is not row.arm:
            notes.append(f"{row.name}: the same as {arm.label} with these switches; measured once")
        shared.append(replace(row, arm=arm))
    return shared, notes
