"""Rows of a table of arms: what stands in each, and how the switches of a command change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from specbench.harness.spec.arm_setup import ArmSetup

from .arm import GRAPH_PART_KEYS, STRATEGY_KEYS, ArmConfig, Switches, arm_key, own_keys, parse_arm


class Resolved(Protocol):
    """An arm whose every switch is known."""

    def setup(self) -> ArmSetup:
        """Its switches, for the record."""
        ...


CheckArm = Callable[[ArmConfig], Resolved]
"""Resolves an arm for the machine it would run on. Raises ValueError, `Refused` where the legality table forbids it."""

_REPORT_KEYS = ("label", "baseline", "claim")


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A row. `arm` is None where `refused` says why it cannot run.

    Of a recipe: `baseline`, whether the rows below are compared with it; `claim`, what the recipe's source says of it.
    Of an ablation: the `switch` and its `value`. Of a sweep: `family`, the argument without its `num_drafts`.
    """

    label: str
    arm: ArmConfig | None = None
    refused: str = ""
    baseline: bool = False
    claim: Mapping[str, str | float] = field(default_factory=dict)
    switch: str = ""
    value: str = ""
    family: str = ""
    num_drafts: int | None = None

    @property
    def the_arm(self) -> ArmConfig:
        """Of a row that was not refused."""
        assert self.arm is not None, self.refused
        return self.arm


def read_arm(table: Mapping[str, object], where: str) -> Variant:
    """A TOML table: `strategy` and any key of a strategy argument, beside what a table of results needs of the arm.

    Raises ValueError naming `where`, the key, its value and what is allowed.
    """
    strategy = table.get("strategy")
    if not isinstance(strategy, str) or not strategy:
        raise ValueError(f"{where}: strategy: {strategy!r} is not allowed; allowed: a strategy argument as text")
    words = [_word(key, value, where) for key, value in table.items() if key not in ("strategy", *_REPORT_KEYS)]
    text = strategy + ("," if ":" in strategy else ":") * bool(words) + ",".join(words)
    label, baseline, claim = table.get("label", text), table.get("baseline", False), table.get("claim", {})
    for key, value, kind in (("label", label, str), ("baseline", baseline, bool), ("claim", claim, dict)):
        if not isinstance(value, kind):
            raise ValueError(f"{where}: {key}: {value!r} is not allowed; allowed: a {kind.__name__}")
    assert isinstance(label, str) and isinstance(baseline, bool) and isinstance(claim, dict)
    for key, value in claim.items():
        if not isinstance(value, (str, int, float)):
            raise ValueError(f"{where}: claim.{key}: {value!r} is not allowed; allowed: a number or text")
    return Variant(label=label, arm=replace(parse_arm(text), label=label), baseline=baseline, claim=claim)


def _word(key: str, value: object, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or "," in str(value) or value == "":
        raise ValueError(f"{where}: {key}: {value!r} is not allowed; allowed: text without a comma, or a number")
    return f"{arm_key(key)}={value}"


def with_switches(row: Variant, switches: Switches) -> Variant:
    """The row under the command's switches: `defaults` where the arm says nothing, `given` whatever it says.

    Options of strategies among them concern arms that have them. A switch of the arm's own that `given` replaces stands
    in the label, so that no label says what was not run. A whole plan (`graph`) replaces the arm's parts too.
    """
    arm, options = row.the_arm, dict(row.the_arm.options)
    asked = {key: value for key, value in switches.values.items() if key in STRATEGY_KEYS}
    for key in asked.keys() & own_keys(arm.strategy) if asked else ():
        options[key] = switches.given.get(key) or options.get(key) or asked[key]
    defaults, given = (
        {k: v for k, v in d.items() if k not in STRATEGY_KEYS} for d in (switches.defaults, switches.given)
    )
    own = {key: value for key, value in arm.engine.items() if "graph" not in given or key not in GRAPH_PART_KEYS}
    changed = [f"{k}={v}" for k, v in given.items() if arm.engine.get(k, v) != v]
    changed += [f"{k}={v}" for k, v in options.items() if k != "head" and arm.options.get(k, v) != v]
    if "graph" in given and len(own) < len(arm.engine) and not any(word.startswith("graph=") for word in changed):
        changed.append(f"graph={given['graph']}")
    label = arm.label + (f" [{','.join(changed)}]" if changed else "")
    engine = {**defaults, **own, **given}
    return replace(row, label=label, arm=replace(arm, label=label, options=options, engine=engine))


def measured_once(rows: Sequence[Variant]) -> tuple[list[Variant], list[str]]:
    """Rows whose arms switches have made the same share one arm; the second part says which those are."""
    first: dict[tuple, ArmConfig] = {}
    shared, notes = [], []
    for row in rows:
        asked = row.the_arm
        key = (asked.strategy, tuple(sorted(asked.options.items())), tuple(sorted(asked.engine.items())))
        arm = first.setdefault(key, asked)
        if arm is not asked:
            notes.append(f"{row.label}: the same as {arm.label} with these switches; measured once")
        shared.append(replace(row, arm=arm))
    return shared, notes
