"""An arm: a strategy with its options and the switches of its engine, as requested and as resolved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from specbench.harness.registry import STRATEGIES, strategy_class

from .choices import ALLOWED
from .plans import PARTS
from .spellings import canonical

# Keys of a strategy argument that belong to the engine; all others are the strategy's own.
GRAPH_PART_KEYS = tuple(f"graph_{part}" for part in PARTS)
# Which program serves an arm of another engine: its interpreter or virtual environment, a revision of the checkout
# installed there, the command that starts its server, or the address of a running server.
PROGRAM_KEYS = ("python", "ref", "command", "url")
ENGINE_KEYS = (*ALLOWED, *GRAPH_PART_KEYS, "status_lag", "acceptance", *PROGRAM_KEYS)
_OWN_CONFIG = "engine."  # prefix of keys of the engine's own configuration
# Strategy options that can be given for all arms whose strategy has them.
STRATEGY_KEYS = ("head", "k", "num_steps", "topk", "num_draft_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmConfig:
    """One row of the table: a strategy with its options, and the engine switches as requested.

    `engine_name`: the engine that serves it; empty: the run's engine."""

    label: str
    strategy: str
    engine_name: str = ""
    options: dict[str, str] = field(default_factory=dict)
    engine: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """A strategy argument that gives this arm, apart from its label."""
        name = f"{self.engine_name}/{self.strategy}" if self.engine_name else self.strategy
        return with_pairs(name, [f"{key}={value}" for key, value in {**self.options, **self.engine}.items()])

    @property
    def own_config(self) -> dict[str, str]:
        """Keys of the engine's own configuration: `engine.block_size=32` as block_size and 32."""
        return {k.removeprefix(_OWN_CONFIG): v for k, v in self.engine.items() if k.startswith(_OWN_CONFIG)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSetup:
    """Every switch of an arm as resolved; None if unknown or not applicable. `options`: the strategy's own, as given;
    `acceptance`: real, or how it is forced. `engine`: the engine that serves it; `driven`: `in process` or `HTTP`.
    """

    graph: str | None = None
    sync: str | None = None
    attention: str | None = None
    attention_drafter: str | None = None
    drafter: str | None = None
    state_update: str | None = None
    status_lag: int | None = None
    num_drafts: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    acceptance: str | None = None
    engine: str | None = None
    driven: str | None = None

    @property
    def has_auto_k(self) -> bool:
        """Whether each round has its own number of drafts; `num_drafts` is then the maximum."""
        return self.options.get("k") == "auto"


class Resolved(Protocol):
    """An arm with all switches resolved."""

    def setup(self) -> ArmSetup:
        """The resolved switches, for the run record."""
        ...


CheckArm = Callable[[ArmConfig], Resolved]
"""Resolves an arm for the machine it would run on. Raises ValueError, or `Refused` if the legality table forbids it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Switches:
    """Keys that apply to all arms: `defaults` if an arm does not set them, `given` by the user in any case."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, str]:
        return {**self.defaults, **self.given}

    @property
    def engine(self) -> dict[str, str]:
        return _of_engine(self.values)


def parse_arm(text: str, defaults: Mapping[str, str] | None = None) -> ArmConfig:
    """`[engine/]name` or `[engine/]name:key=value,key=value`; `defaults` are engine keys given for all arms.

    Raises ValueError for an empty engine, a pair without `=` or a key given twice.
    """
    name, colon, body = text.partition(":")
    if colon and not body:
        raise ValueError(f"strategy: {text!r}: nothing follows the colon; allowed: {name}, or {name}:key=value")
    engine_name, slash, strategy = name.rpartition("/")
    if slash and not engine_name:
        raise ValueError(f"strategy: {text!r}: nothing precedes the slash; allowed: {strategy}, or ENGINE/{strategy}")
    pairs: dict[str, str] = {}
    for pair in body.split(",") if colon else ():
        key, equals, value = pair.partition("=")
        if not equals or not value:
            raise ValueError(f"strategy: {text!r}: {pair!r} is not key=value")
        key = arm_key(key)
        if key in pairs:
            raise ValueError(f"strategy: {text!r}: {key} is given twice")
        pairs[key] = value
    engine = _of_engine(pairs)
    options = {key: value for key, value in pairs.items() if key not in engine}
    engine = {**(defaults or {}), **engine}
    return ArmConfig(label=text, strategy=strategy, engine_name=engine_name, options=options, engine=engine)


def arm_key(key: str) -> str:
    """A key of an arm in our spelling."""
    return canonical(key, (*ENGINE_KEYS, *STRATEGY_KEYS, "min_n", "max_n"))


def own_keys(strategy: str) -> set[str]:
    """Keys that belong to the strategy itself, which is imported. All keys for a strategy that only another engine
    has."""
    if strategy not in STRATEGIES:
        return set(STRATEGY_KEYS)
    return {each.name for each in dataclasses.fields(strategy_class(strategy))}  # type: ignore[arg-type]


def with_pairs(text: str, pairs: Sequence[str]) -> str:
    """A strategy argument with more `key=value` pairs."""
    return text + ("," if ":" in text else ":") + ",".join(pairs) if pairs else text


def with_own_keys(text: str, switches: Switches) -> str:
    """The argument plus the options given for all arms that its strategy has and that it does not set itself."""
    arm = parse_arm(text)
    options = _of_strategy(arm.strategy, switches.values)
    return with_pairs(text, [f"{key}={value}" for key, value in options.items() if key not in arm.options])


def with_switches(arm: ArmConfig, switches: Switches) -> ArmConfig:
    """The arm under the command's switches: `defaults` apply if the arm does not set them, `given` always.

    Strategy options among them apply only to arms whose strategy has them. The label names every switch of the arm that
    `given` replaces, so that no label describes something that was not run. A whole plan (`graph`) also replaces the
    arm's parts.
    """
    given = _of_engine(switches.given)
    own = {key: value for key, value in arm.engine.items() if "graph" not in given or key not in GRAPH_PART_KEYS}
    defaults, replaced = (_of_strategy(arm.strategy, values) for values in (switches.defaults, switches.given))
    options = {**arm.options, **defaults, **arm.options, **replaced}
    changed = [f"{k}={v}" for k, v in given.items() if arm.engine.get(k, v) != v]
    changed += [f"{k}={v}" for k, v in options.items() if k != "head" and arm.options.get(k, v) != v]
    if len(own) < len(arm.engine) and not any(word.startswith("graph=") for word in changed):
        changed.append(f"graph={given['graph']}")
    label = arm.label + (f" [{','.join(changed)}]" if changed else "")
    engine = {**_of_engine(switches.defaults), **own, **given}
    return replace(arm, label=label, options=options, engine=engine)


def _of_engine(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key in ENGINE_KEYS or key.startswith(_OWN_CONFIG)}


def _of_strategy(strategy: str, values: Mapping[str, str]) -> dict[str, str]:
    """The options among `values` that the strategy has. Imports the strategy if there are any."""
    options = {key: value for key, value in values.items() if key in STRATEGY_KEYS}
    own = own_keys(strategy) if options else ()
    return {key: value for key, value in options.items() if key in own}
