"""Fields of another benchmark's result file: what they must be, and a ValueError that names file and field if not."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.text import is_number
from specbench.workloads.json_values import Json, JsonObject


def optional(raw: JsonObject, name: str, num_requests: int, where: str) -> list[Json] | None:
    """None for a field that is missing or empty."""
    values = raw.get(name)
    if values is None or values == []:
        return None
    if not isinstance(values, list) or len(values) != num_requests:
        raise ValueError(f"{where}: {name} has not one value for each of {num_requests} requests")
    return values


def seconds(values: Json, where: str) -> tuple[float, ...]:
    times = [float(v) for v in values if is_number(v) and v >= 0] if isinstance(values, Sequence) else []
    if not isinstance(values, Sequence) or len(times) < len(values):
        raise ValueError(f"{where}: not all values are times in seconds, 0 or more")
    return tuple(times)


def counts(values: Sequence[Json], where: str) -> tuple[int, ...]:
    numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0]
    if len(numbers) < len(values):
        raise ValueError(f"{where}: not all values are numbers of tokens")
    return tuple(numbers)
