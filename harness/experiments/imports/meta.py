"""What a result was measured with: as its file says, and as --meta adds where the file says nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from specbench.harness.text import nearest


@dataclass(frozen=True, kw_only=True, slots=True)
class Meta:
    """None: not known. `engine`: what served the requests; `command`: that of the server."""

    model: str | None = None
    hardware: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    strategy: str | None = None
    num_speculative_tokens: int | None = None
    dataset: str | None = None
    temperature: float | None = None
    max_concurrency: int | None = None
    request_rate: float | None = None
    command: str | None = None


KEYS = tuple(field.name for field in fields(Meta))
LOAD = ("model", "hardware", "dataset", "temperature", "max_concurrency", "request_rate")
"""What must be the same for a factor to be one of what is compared."""

_COUNTS, _NUMBERS = ("num_speculative_tokens", "max_concurrency"), ("temperature", "request_rate")


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """One --meta. `name`: the file or label it is about; empty: all."""

    name: str
    key: str
    value: str | int | float

    def about(self, names: Collection[str]) -> bool:
        return not self.name or self.name in names


def parse_meta(text: str, names: Collection[str]) -> Given:
    """`KEY=VALUE`, or `NAME:KEY=VALUE` with one of `names`. ValueError naming what is allowed."""
    name = max((one for one in names if text.startswith(f"{one}:")), key=len, default="")
    body = text.removeprefix(f"{name}:") if name else text
    key, equals, value = (part.strip() for part in body.partition("="))
    if not equals or not value:
        raise ValueError(f"meta: {text!r} is not KEY=VALUE or NAME:KEY=VALUE")
    wrong, _, known = key.rpartition(":")
    if known in KEYS and wrong:
        raise ValueError(
            f"meta: {key!r} is not known: {wrong!r} is no file and no label; allowed: "
            f"{', '.join(sorted(names, key=lambda one: (len(one), one)))}"
        )
    if key not in KEYS:
        raise ValueError(f"meta: {key!r} is not known{nearest(key, KEYS)}; allowed: {', '.join(KEYS)}")
    return Given(name=name, key=key, value=_value(key, value))


def completed(told: Meta, given: Sequence[Given], where: str) -> Meta:
    """ValueError where the file, or another --meta, says something else."""
    found = told
    for one in given:
        known = getattr(found, one.key)
        if known not in (None, one.value):
            raise ValueError(f"meta: {one.key}={one.value}: {where} has {known!r} already")
        changed: dict[str, Any] = {one.key: one.value}
        found = replace(found, **changed)
    return found


def difference(a: Meta, b: Meta) -> str:
    """In what loads differ, of what both tell; empty if in nothing."""
    pairs = ((name, getattr(a, name), getattr(b, name)) for name in LOAD)
    return "; ".join(f"{name}: {x} and {y}" for name, x, y in pairs if None not in (x, y) and x != y)


def common(all_of: Sequence[Meta]) -> Meta:
    """What all say alike; None where one does not say it or says otherwise."""
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
    if not least <= value < 1e9:  # NaN is refused too
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"meta: {key}={text!r} is not allowed; allowed: {what} of at least {least}")
    return value
