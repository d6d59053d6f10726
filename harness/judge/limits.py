"""Tables of a TOML file as dataclasses; errors name the key, the value and what is allowed."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec

from specbench.harness.text import is_number, nearest

T = TypeVar("T")
Number = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Share(float):
    """0 to 1; in a file `"1%"` or 0.01. A bare number above 1 is refused, because it could mean either."""


def percent(value: float) -> str:
    """A fraction as written in a policy: 0.01 -> 1%."""
    return f"{100 * value:.4g}%"


def read_table(kind: type[T], table: Any, where: str) -> T:
    """`table` of a file as the dataclass `kind`; ValueError naming `where` and the invalid key."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if not isinstance(table, dict):
        raise ValueError(f"{where}: {table!r} is not allowed; allowed: a table of {', '.join(names)}")
    for name in table:
        if name not in names:
            raise ValueError(f"{where}: {unknown(name, names)}")
    for name, value in table.items():
        hint = get_type_hints(kind, include_extras=True)[name]
        try:
            table = {**table, name: msgspec.convert(value, hint, dec_hook=_share)}
        except msgspec.ValidationError as error:
            words = [word for part in (hint, *get_args(hint)) for word in get_args(part) if isinstance(word, str)]
            allowed = f"allowed: {', '.join(words)}{nearest(str(value), words)}" if words else str(error)
            raise ValueError(f"{where}.{name}: {value!r} is not allowed; {allowed}") from error
    try:
        return kind(**table)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def unknown(name: str, allowed: Iterable[str]) -> str:
    """The message for an unknown key, with the nearest known one."""
    words = list(allowed)
    return f"key {name!r} is not known{nearest(name, words, cutoff=0.4)}; allowed: {', '.join(words)}"


def _share(kind: type, value: Any) -> Share:
    text = value.strip() if isinstance(value, str) else ""
    try:
        number = float(text.removesuffix("%")) / 100 if text.endswith("%") else value
    except ValueError:
        number = None
    if not is_number(number) or not 0 <= number <= 1:
        raise ValueError('allowed: a percentage as "1%" or a fraction as 0.01, from 0 to 1')
    return Share(number)
