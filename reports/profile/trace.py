"""The timeline of a profile's median round as Chrome trace JSON, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Mapping

from specbench.harness.profiling.record import Profile
from specbench.reports.profile.cells import phase_name
from specbench.reports.profile.timeline import bars_by_row, row_name
from specbench.workloads.json_values import JsonObject


def trace_events(profiles: Mapping[str, Profile]) -> JsonObject:
    """One process per profile, one thread per row; `X` events with `ts` and `dur` in microseconds, as in Chrome's Trace
    Event Format."""
    events: list[JsonObject] = []
    for pid, (name, profile) in enumerate(profiles.items(), start=1):
        rows = {row: i for i, row in enumerate(bars_by_row(profile.timeline), start=1)}
        events.append(_meta("process_name", pid, 0, name=name))
        for row, tid in rows.items():
            events.append(_meta("thread_name", pid, tid, name=row_name(row)))
            events.append(_meta("thread_sort_index", pid, tid, sort_index=tid))
        for bar in profile.timeline:
            phase = phase_name(bar.phase, bar.draft_step)
            event: JsonObject = {
                "name": bar.name or phase,
                "cat": bar.row.partition(":")[0],
                "ph": "X",
                "ts": bar.t0_ns / 1e3,
                "dur": (bar.t1_ns - bar.t0_ns) / 1e3,
                "pid": pid,
                "tid": rows[bar.row],
                "args": {"phase": phase, "from a graph": bar.via_graph},
            }
            events.append(event)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def trace_json(profiles: Mapping[str, Profile]) -> str:
    return json.dumps(trace_events(profiles), allow_nan=False) + "\n"


def _meta(kind: str, pid: int, tid: int, **args: str | int) -> JsonObject:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}
