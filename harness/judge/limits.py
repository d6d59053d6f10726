"""Values of a policy file: each kind of key reads itself, and says what it takes when it cannot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from specbench.harness.text import is_number, nearest

T = TypeVar("T")
_PARSE = "parse"


def fraction(value: Any) -> float:
    """`"1%"` or 0.01; 0 to 1. A bare number above 1 is refused: it could mean either."""
    number: Any = value
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            number = float(value.strip().removesuffix("%")) / 100
        except ValueError:
            number = None
    if not is_number(number) or not 0 <= number <= 1:
        raise ValueError('allowed: a percentage as "1%" or a fraction as 0.01, from 0 to 1')
    return float(number)


def percent(value: float) -> str:
    """A fraction as it may be written in a policy: 0.01 -> 1%."""
    return f"{100 * value:.4g}%"


def number(value: Any) -> float:
    if not is_number(value) or value < 0:
        raise ValueError("allowed: a number, 0 or more")
    return float(value)


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("allowed: true, false")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("allowed: text")
    return value


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise ValueError('allowed: a list of texts, as ["eagle:k=4"]')
    return tuple(value)


def word(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"allowed: {', '.join(allowed)}{nearest(str(value), allowed)}")
        return str(value)

    return parse


def by_arm(value: Any) -> float | dict[str, float]:
    """One number for all arms, or a table of arm labels and numbers."""
    if isinstance(value, Mapping) and value:
        return {str(label): number(own) for label, own in value.items()}
    if isinstance(value, Mapping):
        raise ValueError("allowed: a number, or a table of arm labels and numbers")
    return number(value)


def key(parse: Callable[[Any], Any], default: Any = None) -> Any:
    """A dataclass field that a policy file may set."""
    return dataclasses.field(default=default, metadata={_PARSE: parse})


def read_table(kind: type[T], table: Any, where: str) -> T:
    """`table` of a file as the dataclass `kind`; ValueError naming `where` and the key for what does not fit."""
    if not isinstance(table, Mapping):
        raise ValueError(f"{where}: {table!r} is not allowed; allowed: a table of {', '.join(_keys(kind))}")
    parsers = _keys(kind)
    values = {}
    for name, value in table.items():
        if name not in parsers:
            raise ValueError(f"{where}: {unknown(name, parsers)}")
        try:
            values[name] = parsers[name](value)
        except ValueError as error:
            raise ValueError(f"{where}.{name}: {value!r} is not allowed; {error}") from error
    return kind(**values)


def unknown(name: str, allowed: Iterable[str]) -> str:
    """What to say of a key that does not exist, with the nearest that does."""
    words = list(allowed)
    return f"key {name!r} is not known{nearest(name, words, cutoff=0.4)}; allowed: {', '.join(words)}"


def _keys(kind: Any) -> dict[str, Callable[[Any], Any]]:
    return {f.name: f.metadata[_PARSE] for f in dataclasses.fields(kind) if _PARSE in f.metadata}
