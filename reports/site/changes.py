"""Environments as flat tables, and what changed between runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from specbench.harness.store.files import Json, to_object, to_plain
from specbench.harness.store.run_record import RunRecord
from specbench.reports.document import Table

from .groups import by_kind
from .runs import SiteRun

_VARYING, _HARDWARE = "load_average", "hardware"
_NUM_CHANGES = 100
_HASH = re.compile("[0-9a-f]{64}")


def environment_rows(record: RunRecord) -> Iterator[tuple[str, str]]:
    """`hardware.cpu.model`, ... with their values; unknown values are left out."""
    yield from _flat("git", to_plain(record.git))
    yield from _flat("", to_plain(record.environment))


def changes_table(runs: Sequence[SiteRun]) -> Table | None:
    """What differs in hardware, software and settings between each run (newest first) and the previous run of the same
    model, workload and load, on any machine; a change that several workloads show is listed once. None if nothing
    changed."""
    found: dict[tuple[str, str, str], SiteRun] = {}
    for group in by_kind(runs):
        for newer, older in zip(group.runs, group.runs[1:], strict=False):
            for change in _changes(newer, older):
                first = found.get(change, newer)
                found[change] = newer if newer.started_utc <= first.started_utc else first
    if not found:
        return None
    rows = sorted(((r.started_utc, r.commit, *change) for change, r in found.items()), key=lambda row: row[0])[::-1]
    notes = [f"The newest {_NUM_CHANGES} of {len(rows)}."] if len(rows) > _NUM_CHANGES else []
    notes.append(
        "Compared with the previous run of the same model, workload and load; a change seen in several is listed once."
    )
    headers = ("first run (UTC)", "commit", "what", "before", "since")
    title = "Hardware, software and settings that changed"
    return Table(title=title, headers=headers, rows=tuple(rows[:_NUM_CHANGES]), notes=tuple(notes))


def _changes(newer: SiteRun, older: SiteRun) -> Iterator[tuple[str, str, str]]:
    """(what, before, since); for a change of machine only its name, not all its parts."""
    machines = [run.hardware for run in (older, newer)]
    if machines[0] != machines[1]:
        yield _HARDWARE, machines[0], machines[1]
    found = dict(_compared(older)), dict(_compared(newer))
    for name in sorted({*found[0], *found[1]}):
        before, since = (side.get(name, "-") for side in found)
        if before != since and not (machines[0] != machines[1] and name.startswith(_HARDWARE)):
            yield name, before, since


def difference_table(newer: SiteRun, older: SiteRun) -> Table | None:
    """What differs between two runs in code, configuration, hardware, software and settings; None if nothing does."""
    found = dict(_of_run(older)), dict(_of_run(newer))
    rows = tuple(
        (name, *map(_short, values))
        for name in dict.fromkeys([*found[0], *found[1]])
        if (values := tuple(side.get(name, "-") for side in found))[0] != values[1]
    )
    if not rows:
        return None
    return Table(title=f"Since {older.run_id}", headers=("what", "before", "now"), rows=rows)


def _of_run(run: SiteRun) -> Iterator[tuple[str, str]]:
    record = run.record
    arms = record.arms if not run.is_experiment else ()
    for name in ("git", "model", "workload"):
        yield from _flat(name, to_plain(getattr(record, name)))
    config = to_object(record.config) if record.config else {}
    yield from _flat("config", {name: value for name, value in config.items() if name != "arms"})
    yield "arms", ", ".join(arm.label for arm in arms)
    yield from _compared(run)


def _compared(run: SiteRun) -> Iterator[tuple[str, str]]:
    for name, value in _flat("", to_plain(run.record.environment)):
        if not name.startswith(_VARYING):
            yield name, value


def _short(value: str) -> str:
    """The beginning of a long hash, enough to tell two apart."""
    return f"{value[:16]}..." if _HASH.fullmatch(value) else value


def _flat(prefix: str, value: Json) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else key, item)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for n, item in enumerate(value):
            yield from _flat(f"{prefix}.{n}", item)
    elif value not in (None, "", []):
        yield prefix, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
