"""Options of a strategy argument (`eagle:k=4,head=DIR`) read into a strategy's own dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def read_options(kind: type[T], strategy: str, options: Mapping[str, str]) -> T:
    """An instance of the dataclass `kind` from text values. ValueError names the key, the value and what is allowed."""
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, text in options.items():
        if key not in fields:
            raise ValueError(f"{strategy}: unknown option {key!r}={text!r}; allowed: {', '.join(fields) or 'none'}")
        values[key] = _convert(strategy, key, text, fields[key].default)
    return kind(**values)


def _convert(strategy: str, key: str, text: str, default: Any) -> Any:
    if not isinstance(default, int):
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{strategy}: {key}={text!r} is not a whole number") from None


def check_num_drafts(strategy: str, k: int, most: int = 8) -> None:
    if not 1 <= k <= most:
        raise ValueError(f"{strategy}: k={k} is not allowed; allowed: 1 to {most}")
