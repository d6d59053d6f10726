"""Allowed values of a config.json key, the check of a whole object against a table of keys, and checked values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from specbench.workloads.json_values import Json, JsonObject

_MAX_SHOWN = 80  # characters of a refused value


class Rule(Protocol):
    """The values that one key may have; `allowed` describes them."""

    @property
    def allowed(self) -> str: ...

    def accepts(self, value: Json) -> bool: ...


@dataclass(frozen=True, slots=True)
class Whole:
    low: int
    high: int

    @property
    def allowed(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def accepts(self, value: Json) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Positive:
    """A finite number above 0, at most `high`."""

    high: float

    @property
    def allowed(self) -> str:
        return f"a number above 0, at most {self.high:g}"

    def accepts(self, value: Json) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= self.high


@dataclass(frozen=True, slots=True)
class OneOf:
    """`choices` have one type: JSON's true is not 1."""

    choices: tuple[str | bool | float, ...]

    @property
    def allowed(self) -> str:
        return ", ".join(c if isinstance(c, str) else json.dumps(c) for c in self.choices)

    def accepts(self, value: Json) -> bool:
        is_flag = isinstance(self.choices[0], bool)
        return isinstance(value, bool) == is_flag and not isinstance(value, (list, dict)) and value in self.choices


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, possibly empty; with `or_one`, also a single value that is not a list."""

    entry: Rule
    or_one: bool = False

    @property
    def allowed(self) -> str:
        one = f"{self.entry.allowed}, or " if self.or_one else ""
        return f"{one}a list of entries that are each {self.entry.allowed}"

    def accepts(self, value: Json) -> bool:
        if isinstance(value, list):
            return all(self.entry.accepts(entry) for entry in value)
        return self.or_one and self.entry.accepts(value)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A name, or `re:` and a regular expression."""

    allowed: str = "a name, or re: and a regular expression"

    def accepts(self, value: Json) -> bool:
        try:
            return isinstance(value, str) and bool(re.compile(value.removeprefix("re:")))
        except re.error:
            return False


@dataclass(frozen=True, slots=True)
class Nested:
    """An object whose keys are checked by their own table."""

    keys: Mapping[str, Rule]
    allowed: str = "an object"

    def accepts(self, value: Json) -> bool:
        return isinstance(value, dict)


@dataclass(frozen=True, slots=True)
class NoModelCode:
    """`auto_map`: names of Python code in the model's folder. For a tokenizer or a config it changes no weights."""

    allowed: str = "no AutoModel entries (Python code of the model's own is never run)"

    def accepts(self, value: Json) -> bool:
        return isinstance(value, dict) and not any(key.startswith("AutoModel") for key in value)


@dataclass(frozen=True, slots=True)
class Empty:
    allowed: str = "nothing in it"

    def accepts(self, value: Json) -> bool:
        return isinstance(value, (list, dict)) and not value


@dataclass(frozen=True, slots=True)
class Harmless:
    """Not used here: the model computes the same for every value."""

    allowed: str = "anything"

    def accepts(self, value: Json) -> bool:
        return True


def shown(value: Json) -> str:
    """A value for an error message: as JSON, texts in single quotes, long ones truncated."""
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def check_keys(raw: JsonObject, keys: Mapping[str, Rule], where: str) -> None:
    """ValueError for the first key that is not in `keys` or whose value is not allowed."""
    for key, value in raw.items():
        if value is None or key.startswith("_"):  # private notes of whatever wrote the file
            continue
        rule = keys.get(key)
        if rule is None:
            raise ValueError(
                f"{where}: key {shown(key)} with {shown(value)} is not known to this engine and may change the model; "
                "allowed: the keys of Llama, Mistral, Qwen2, Qwen3 and EAGLE heads (remove it if it changes nothing)"
            )
        if not rule.accepts(value):
            raise ValueError(f"{where}: {key} {shown(value)} is not supported; allowed: {rule.allowed}")
        if isinstance(rule, Nested) and isinstance(value, Mapping):
            check_keys(value, rule.keys, f"{where}: {key}")


def whole_of(raw: JsonObject, key: str, default: int) -> int:
    """A checked whole number; `default` if it is missing or null."""
    value = raw.get(key)
    return value if isinstance(value, int) else default


def number_of(raw: JsonObject, key: str, default: float = math.nan) -> float:
    """A checked number; `default` if it is missing or null."""
    value = raw.get(key)
    return float(value) if isinstance(value, (int, float)) else default


def flag_of(raw: JsonObject, key: str, default: bool = False) -> bool:
    value = raw.get(key)
    return value if isinstance(value, bool) else default


def object_of(raw: JsonObject, key: str) -> JsonObject:
    """A checked object, empty if it is missing or null."""
    value = raw.get(key)
    return value if isinstance(value, Mapping) else {}
