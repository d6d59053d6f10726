"""Fields of another benchmark's result file: what they must be, and a ValueError that names file and field if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specbench.harness.text import is_number


def optional(raw: Mapping[str, Any], name: str, num_requests: int, where: str) -> list[Any] | None:
    """None for a field that is missing or empty."""
    values = raw.get(name)
    if values is None or values == []:
        return None
    if not isinstance(values, list) or len(values) != num_requests:
        raise ValueError(f"{where}: {name} has not one value for each of {num_requests} requests")
    return values


def seconds(values: Any, where: str) -> tuple[float, ...]:
    if not isinstance(values, Sequence) or not all(is_number(v) and v >= 0 for v in values):
        raise ValueError(f"{where}: not all values are times in seconds, 0 or more")
    return tuple(float(v) for v in values)


def counts(values: Sequence[Any], where: str) -> tuple[int, ...]:
    if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values):
        raise ValueError(f"{where}: not all values are numbers of tokens")
    return tuple(values)
