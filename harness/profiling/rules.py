"""Which range of a trace is what: globs over range names, from rules.toml and a user's file ahead of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import translate
from pathlib import Path
from typing import Any

from specbench.harness.text import tomllib

from .record import PHASES

SHIPPED = Path(__file__).with_name("rules.toml")
STEP_KINDS = ("any", "decode", "mixed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What a range is whose name fits `pattern`; the fields are explained at the head of rules.toml."""

    pattern: str
    step: str | None = None
    until_next: bool = False
    starts_step: bool = False
    phase: str | None = None
    draft_step: int | None = None
    counts_from: int | None = None
    segment: str | None = None
    covers: bool = False
    late: bool = False
    also: str | None = None

    def __post_init__(self) -> None:
        if self.step is not None and self.step not in STEP_KINDS:
            raise ValueError(f"rules: step {self.step!r} of {self.pattern!r}; allowed: {', '.join(STEP_KINDS)}")
        for name in ("phase", "also"):
            value = getattr(self, name)
            if value is not None and value not in PHASES:
                raise ValueError(f"rules: {name} {value!r} of {self.pattern!r}; allowed: {', '.join(PHASES)}")
        if not (self.step or self.phase or self.segment):
            raise ValueError(f"rules: {self.pattern!r} says nothing; give one of step, phase, segment")
        if self.phase != "draft" and (self.draft_step is not None or self.counts_from is not None):
            raise ValueError(f"rules: {self.pattern!r} numbers passes of phase {self.phase!r}; allowed: draft")


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseRules:
    """Rules in their order, and globs (case does not count) of attention kernels."""

    rules: tuple[Rule, ...]
    attention: tuple[str, ...]

    @classmethod
    def shipped(cls) -> PhaseRules:
        return _parse(SHIPPED)

    def with_file(self, path: Path | None) -> PhaseRules:
        """These rules with those of a user's file, if any, ahead of them. ValueError says what is wrong in it."""
        if path is None:
            return self
        own = _parse(path)
        return replace(self, rules=(*own.rules, *self.rules), attention=(*own.attention, *self.attention))

    def matcher(self) -> Matcher:
        return Matcher(self)


class Matcher:
    """Finds the rule of a name; remembers names, of which a trace repeats few."""

    def __init__(self, rules: PhaseRules):
        self._rules = [(re.compile(translate(rule.pattern)), rule) for rule in rules.rules]
        self._attention = re.compile("|".join(translate(p) for p in rules.attention) or r"(?!)", re.IGNORECASE)
        self._known: dict[str, Rule | None] = {}

    def rule(self, name: str) -> Rule | None:
        if name not in self._known:
            self._known[name] = next((rule for pattern, rule in self._rules if pattern.match(name)), None)
        return self._known[name]

    def is_attention(self, kernel: str) -> bool:
        return self._attention.match(kernel) is not None


def _parse(path: Path) -> PhaseRules:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"rules: {path} cannot be read as TOML: {error}") from error
    unknown = set(raw) - {"rule", "attention"}
    if unknown:
        raise ValueError(f"rules: {path} has {', '.join(sorted(unknown))}; allowed: rule, attention")
    attention = raw.get("attention", [])
    tables = raw.get("rule", [])
    if not isinstance(attention, list) or not all(isinstance(p, str) for p in attention):
        raise ValueError(f"rules: attention of {path} is {attention!r}; allowed: a list of globs")
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise ValueError(f"rules: rule of {path} is no list of tables; write each as [[rule]]")
    return PhaseRules(rules=tuple(_rule(path, table) for table in tables), attention=tuple(attention))


_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("pattern", "step", "phase", "segment", "also"), str),
    **dict.fromkeys(("until_next", "starts_step", "covers", "late"), bool),
    **dict.fromkeys(("draft_step", "counts_from"), int),
}


def _rule(path: Path, table: Mapping[str, Any]) -> Rule:
    assert set(_TYPES) == {field.name for field in fields(Rule)}
    if "pattern" not in table:
        raise ValueError(f"rules: a [[rule]] of {path} has no pattern: {dict(table)!r}")
    for name, value in table.items():
        if name not in _TYPES:
            raise ValueError(f"rules: {name!r} of {table['pattern']!r} in {path}; allowed: {', '.join(_TYPES)}")
        if type(value) is not _TYPES[name]:
            kind = _TYPES[name].__name__
            raise ValueError(f"rules: {name} of {table['pattern']!r} in {path} is {value!r}; allowed: a {kind}")
    return Rule(**table)
