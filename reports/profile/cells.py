"""Figures of profiles as text: durations and counts per round."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from specbench.reports.cells import NOTHING

_Item = TypeVar("_Item")
_NAME_HEAD, _NAME_TAIL = 70, 29  # characters kept of a kernel's name that is too long for a table


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeUnit:
    """The unit of durations that share a column or an axis, so that they can be compared. `name`: as in the header."""

    name: str
    ns: float
    least: float  # smaller values have a third decimal

    def text(self, duration_ns: float | None, *, signed: bool = False) -> str:
        """`1.05`, `31.2`, `1,234`: two decimals below 10, none from 1,000."""
        if duration_ns is None:
            return NOTHING
        value = duration_ns / self.ns
        digits = 3 if 0 < abs(value) < self.least else 2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
        return f"{value:{'+' if signed else ''},.{digits}f}"


MICROSECONDS = TimeUnit(name="µs", ns=1e3, least=0.0)
MILLISECONDS = TimeUnit(name="ms", ns=1e6, least=0.1)
_MOST_US = 10_000


def unit_of(durations_ns: Iterable[float | None]) -> TimeUnit:
    """Microseconds, or milliseconds if the longest duration has 10,000 µs or more."""
    longest_ns = max((abs(ns) for ns in durations_ns if ns is not None), default=0.0)
    return MILLISECONDS if longest_ns >= _MOST_US * MICROSECONDS.ns else MICROSECONDS


def duration(duration_ns: float | None) -> str:
    """With its unit: `31.2 µs`, `1,229 ms`."""
    unit = unit_of([duration_ns])
    return NOTHING if duration_ns is None else f"{unit.text(duration_ns)} {unit.name}"


def times(header: str, of: Callable[[_Item], float | None], rows: Iterable[_Item]) -> dict[str, Callable[[_Item], str]]:
    """A column of durations in the unit that suits all of `rows`. `header`: with `{}` in place of the unit; `of`: gives
    ns."""
    unit = unit_of(map(of, rows))
    return {header.format(unit.name): lambda row: unit.text(of(row))}


def count(value: float | None, *, signed: bool = False) -> str:
    """A count per round: whole numbers as such, else two decimals; `<0.01` for smaller counts above 0."""
    if value is None:
        return NOTHING
    if 0 < abs(value) < 0.005 and not signed:
        return "<0.01"
    text = f"{value:{'+' if signed else ''}.2f}"
    return text.rstrip("0").rstrip(".") if float(text) else "0"


def points(value: float | None) -> str:
    """A difference of shares in percentage points: `+12.5 pt`."""
    return NOTHING if value is None else f"{value * 100:+.1f} pt" if round(value, 6) else "0 pt"


def phase_name(phase: str, draft_step: int | None) -> str:
    """`verify`, `draft step 2`."""
    return phase if draft_step is None else f"{phase} step {draft_step}"


def steps_name(phase: str, draft_steps: Iterable[int]) -> str:
    """`draft steps 1 to 3`, `draft steps 1, 3`, `draft step 0`, `verify` without any."""
    steps = sorted(set(draft_steps))
    if len(steps) < 2:
        return phase_name(phase, steps[0] if steps else None)
    are_neighbours = steps[-1] - steps[0] == len(steps) - 1
    return f"{phase} steps {f'{steps[0]} to {steps[-1]}' if are_neighbours else ', '.join(map(str, steps))}"


def kernel_name(name: str) -> str:
    """The name without return type and argument list; the middle is cut if it is still too long."""
    text = name.removeprefix("void ")
    opening = _opening(text) if text.endswith(")") else 0
    if opening > 0 and text[opening - 1] != " ":  # `Memcpy DtoH (Device -> Pageable)` is a name, not a signature
        text = text[:opening]
    return text if len(text) <= _NAME_HEAD + _NAME_TAIL + 1 else f"{text[:_NAME_HEAD]}…{text[-_NAME_TAIL:]}"


def cause_name(cause: str) -> str:
    return cause.replace("-", " ")


def num_bytes_text(num_bytes: int) -> str:
    """`1,234 B`, `1.2 MB`."""
    return f"{num_bytes:,} B" if num_bytes < 100_000 else f"{num_bytes / 1e6:,.1f} MB"


def _opening(text: str) -> int:
    """Position of the parenthesis that the last character closes."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)
