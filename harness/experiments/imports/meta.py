"""What a result was measured with, from its file, completed by --meta."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any

import msgspec

from specbench.harness.text import nearest

_AtLeast0 = msgspec.Meta(ge=0)  # refuses NaN, too


@dataclass(frozen=True, kw_only=True, slots=True)
class Meta:
    """None: unknown. `engine`: what served the requests; `command`: of the server."""

    model: str | None = None
    hardware: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    strategy: str | None = None
    num_speculative_tokens: Annotated[int, _AtLeast0] | None = None
    dataset: str | None = None
    temperature: float | None = None
    max_concurrency: Annotated[int, _AtLeast0] | None = None
    request_rate: Annotated[float, _AtLeast0] | None = None
    command: str | None = None


KEYS = tuple(field.name for field in fields(Meta))
LOAD = ("model", "hardware", "dataset", "temperature", "max_concurrency", "request_rate")
"""What must be the same so that a factor compares only the arms."""

_COUNTS, _NUMBERS = ("num_speculative_tokens", "max_concurrency"), ("temperature", "request_rate")


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """One --meta. `name`: the file or label that it applies to; empty: all."""

    name: str
    key: str
    value: str | int | float

    def about(self, names: Collection[str]) -> bool:
        return not self.name or self.name in names


def parse_meta(text: str, names: Collection[str]) -> Given:
    """Parses `KEY=VALUE`, or `NAME:KEY=VALUE` with one of `names`. ValueError naming what is allowed."""
    name = max((one for one in names if text.startswith(f"{one}:")), key=len, default="")
    body = text.removeprefix(f"{name}:") if name else text
    key, equals, value = (part.strip() for part in body.partition("="))
    if not equals or not value:
        raise ValueError(f"meta: {text!r} is not KEY=VALUE or NAME:KEY=VALUE")
    wrong, _, known = key.rpartition(":")
    if known in KEYS and wrong:
        raise ValueError(
            f"meta: {key!r} is not known: {wrong!r} is neither a file nor a label; allowed: "
            f"{', '.join(sorted(names, key=lambda one: (len(one), one)))}"
        )
    if key not in KEYS:
        raise ValueError(f"meta: {key!r} is not known{nearest(key, KEYS)}; allowed: {', '.join(KEYS)}")
    return Given(name=name, key=key, value=_value(key, value))


def completed(from_file: Meta, given: Sequence[Given], where: str) -> Meta:
    """The file's metadata completed by --meta. ValueError if the file, or another --meta, has a different value."""
    meta = from_file
    for one in given:
        known = getattr(meta, one.key)
        if known not in (None, one.value):
            raise ValueError(f"meta: {one.key}={one.value}: {where} already has {known!r}")
        changed: dict[str, Any] = {one.key: one.value}
        meta = replace(meta, **changed)
    return meta


def difference(a: Meta, b: Meta) -> str:
    """How the loads differ in the fields that both have; empty if they do not."""
    pairs = ((name, getattr(a, name), getattr(b, name)) for name in LOAD)
    return "; ".join(f"{name}: {x} and {y}" for name, x, y in pairs if None not in (x, y) and x != y)


def common(all_of: Sequence[Meta]) -> Meta:
    """The values that all have in common; None for the other fields."""
    first, *others = (asdict(one) for one in all_of)
    return Meta(**{key: value for key, value in first.items() if all(one[key] == value for one in others)})


def _value(key: str, text: str) -> str | int | float:
    kind = int if key in _COUNTS else float if key in _NUMBERS else None
    if kind is None:
        return text
    try:
        value = kind(text)
    except ValueError:
        value = -1
    least = 1 if key == "max_concurrency" else 0
    if not least <= value < 1e9:  # refuses NaN, too
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"meta: {key}={text!r} is not allowed; allowed: {what} of at least {least}")
    return value
