"""Environments as flat tables, and what changed between runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specbench.reports.result_table import ResultTable

from .runs import SiteRun

_VARYING = "load_average"
_NUM_CHANGES = 100


def environment_rows(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """`hardware.cpu.model`, ... with their values; what nothing is known of is left out."""
    yield from _flat("", {"git": manifest.get("git") or {}, **(manifest.get("environment") or {})})


def changes_table(runs: Sequence[SiteRun]) -> ResultTable | None:
    """What differs in hardware, software and settings from the run before (runs newest first); None for no change."""
    rows = []
    for newer, older in zip(runs, runs[1:], strict=False):
        found = dict(_compared(older)), dict(_compared(newer))
        for name in sorted({*found[0], *found[1]}):
            values = [side.get(name, "-") for side in found]
            if values[0] != values[1]:
                rows.append((newer.started_utc, newer.commit, name, *values))
    if not rows:
        return None
    notes = (f"The newest {_NUM_CHANGES} of {len(rows)}.",) if len(rows) > _NUM_CHANGES else ()
    headers = ("first run (UTC)", "commit", "what", "before", "since")
    return ResultTable(title="Environment changes", headers=headers, rows=tuple(rows[:_NUM_CHANGES]), notes=notes)


def _compared(run: SiteRun) -> Iterator[tuple[str, str]]:
    for name, value in _flat("", run.manifest.get("environment") or {}):
        if not name.startswith(_VARYING):
            yield name, value


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        for n, item in enumerate(value):
            yield from _flat(f"{prefix}.{n}", item)
    elif value not in (None, "", [], ()):
        yield prefix, ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
