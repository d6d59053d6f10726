"""An arm as asked for: a strategy with its options, and the switches of its engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench.harness.registry import strategy_class

from .legality import ALLOWED
from .plans import PARTS
from .spellings import canonical

# Keys of a strategy argument that belong to the engine; all others are the strategy's own.
GRAPH_PART_KEYS = tuple(f"graph_{part}" for part in PARTS)
ENGINE_KEYS = (*ALLOWED, *GRAPH_PART_KEYS, "status_lag", "acceptance")
# Options of strategies that can be given for all arms whose strategy has them.
STRATEGY_KEYS = ("head", "k", "num_steps", "topk", "num_draft_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmConfig:
    """One row of the table: a strategy with its options, and the switches of its engine as asked for."""

    label: str
    strategy: str
    options: dict[str, str] = field(default_factory=dict)
    engine: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """A strategy argument that asks for this arm, whatever its label."""
        pairs = ",".join(f"{key}={value}" for key, value in {**self.options, **self.engine}.items())
        return f"{self.strategy}:{pairs}" if pairs else self.strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class Switches:
    """Keys of arms given for all of them: `defaults` where an arm says nothing, `given` by the user himself."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, str]:
        return {**self.defaults, **self.given}

    @property
    def engine(self) -> dict[str, str]:
        return {key: value for key, value in self.values.items() if key in ENGINE_KEYS}


def parse_arm(text: str, defaults: Mapping[str, str] | None = None) -> ArmConfig:
    """`name` or `name:key=value,key=value`; `defaults` are engine keys given for all arms.

    Raises ValueError for a pair without `=` or a key given twice.
    """
    strategy, _, body = text.partition(":")
    options: dict[str, str] = {}
    engine = dict(defaults or {})
    seen: set[str] = set()
    for pair in filter(None, body.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not value:
            raise ValueError(f"strategy: {text!r}: {pair!r} is not key=value")
        key = arm_key(key)
        if key in seen:
            raise ValueError(f"strategy: {text!r}: {key} is given twice")
        seen.add(key)
        (engine if key in ENGINE_KEYS else options)[key] = value
    return ArmConfig(label=text, strategy=strategy, options=options, engine=engine)


def arm_key(key: str) -> str:
    """A key of an arm in our spelling."""
    return canonical(key, (*ENGINE_KEYS, *STRATEGY_KEYS, "min_n", "max_n"))


def own_keys(strategy: str) -> set[str]:
    """Keys that belong to the strategy itself. Imports it."""
    return {each.name for each in dataclasses.fields(strategy_class(strategy))}  # type: ignore[arg-type]


def with_own_keys(text: str, switches: Switches) -> str:
    """An argument with the options given for all arms, where its strategy has them and it does not say its own."""
    asked = {key: value for key, value in switches.values.items() if key in STRATEGY_KEYS}
    if not asked:
        return text
    arm = parse_arm(text)
    added = [f"{k}={v}" for k, v in asked.items() if k in own_keys(arm.strategy) and k not in arm.options]
    return text + (":" if added and ":" not in text else "," if added else "") + ",".join(added)
