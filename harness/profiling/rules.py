"""The meaning of each range of a trace: globs over range names, first from a user's file, then from rules.toml."""

from __future__ import annotations

import re
from fnmatch import translate
from pathlib import Path

import msgspec

from specbench.workloads.guarded import parse_toml, read_text

from .record import PHASES

SHIPPED = Path(__file__).with_name("rules.toml")
STEP_KINDS = ("any", "decode", "mixed")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The meaning of a range whose name matches `pattern`; the fields are explained at the head of rules.toml."""

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
        for name, allowed in (("step", STEP_KINDS), ("phase", PHASES), ("also", PHASES)):
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise ValueError(f"{name} {value!r} of {self.pattern!r}; allowed: {', '.join(allowed)}")
        if not (self.step or self.phase or self.segment):
            raise ValueError(f"{self.pattern!r} has no meaning; give one of step, phase, segment")
        if self.phase != "draft" and (self.draft_step is not None or self.counts_from is not None):
            raise ValueError(f"{self.pattern!r} numbers passes of phase {self.phase!r}; allowed: draft")


class PhaseRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"rules": "rule"}):
    """Rules in order, and case-insensitive globs of attention kernels."""

    rules: tuple[Rule, ...] = ()
    attention: tuple[str, ...] = ()

    @staticmethod
    def shipped() -> PhaseRules:
        return _parse(SHIPPED)

    def with_file(self, path: Path | None) -> PhaseRules:
        """These rules preceded by those of a user's file, if any. ValueError says what is wrong in it."""
        if path is None:
            return self
        users = _parse(path)
        return PhaseRules(rules=users.rules + self.rules, attention=users.attention + self.attention)

    def matcher(self) -> Matcher:
        return Matcher(self)


class Matcher:
    """Finds the rule of a name; caches names, since a trace repeats a few of them."""

    def __init__(self, rules: PhaseRules):
        self._rules = [(re.compile(translate(rule.pattern)), rule) for rule in rules.rules]
        self._attention = re.compile("|".join(translate(p) for p in rules.attention) or r"(?!)", re.IGNORECASE)
        self._known: dict[str, Rule | None] = {}
        self._attends: dict[str, bool] = {}

    def rule(self, name: str) -> Rule | None:
        if name not in self._known:
            self._known[name] = next((rule for pattern, rule in self._rules if pattern.match(name)), None)
        return self._known[name]

    def is_attention(self, kernel: str) -> bool:
        if kernel not in self._attends:
            self._attends[kernel] = self._attention.match(kernel) is not None
        return self._attends[kernel]


def _parse(path: Path) -> PhaseRules:
    try:
        return msgspec.convert(parse_toml(read_text(path)), PhaseRules)
    except msgspec.ValidationError as error:
        raise ValueError(f"rules: {path}: {error}; {SHIPPED} explains the fields") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"rules: {path} cannot be read as TOML: {error}") from error
