"""Where the host waits for the GPU: explicit synchronisation, blocking copies, copies into pageable memory, and memory
frees, which wait for all queued work of the device.

An asynchronous copy from the device into pageable memory blocks the host. In real traces such copies account for the
wait, and the synchronise call after them costs nothing. Both calls are one read (torch's `.tolist()`), so they count
once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .attribution import Attribution, place
from .record import LATE, PHASES, SyncFigures
from .rounds import Rounds
from .spans import innermost
from .trace_db import MEMCPY, ApiCall

EXPLICIT, BLOCKING, PAGEABLE_COPY = "explicit", "blocking-copy", "pageable-copy"
FREE = "free"

_SYNCHRONIZE = re.compile(r"cu(da)?\w*Synchronize")
_BLOCKING_COPY = re.compile(r"cu(da)?Memcpy(?!\w*Async)")
_ASYNC_COPY = re.compile(r"cu(da)?Memcpy\w*Async")
_TO_PAGEABLE = re.compile(r"Memcpy DtoH \(.* -> Pageable\)")
_FREE = re.compile(r"cudaFree(Host|Array|MipmappedArray)?$|cudaHostUnregister$|cuMem(Free|FreeHost|HostUnregister)$")
_QUESTION = re.compile(r"cu(da)?\w*(Get|Query|IsCapturing|Attribute)")  # cudaEventQuery and the like wait for nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """One wait of the host. `round`: index of a step; -1 outside."""

    api: str
    kind: str
    phase: str
    round: int
    t0: int
    t1: int
    site: str


def find_waits(a: Attribution, calls: Sequence[ApiCall]) -> list[Wait]:
    """The waits among the calls of the engine's thread, in time order. A wait between two steps belongs to the step
    before it, as phase `status`; one in a step but in no range belongs to the host."""
    found: list[tuple[str, str, int, int, str]] = []
    copies = _copies_by_launch(a)
    open_copy: ApiCall | None = None  # a pageable copy, as long as nothing but questions followed it
    kinds = {name: _kind_of(name) for name in {call.name for call in calls}}
    for call in calls:
        kind = kinds[call.name]
        if kind is _SYNCHRONIZE:
            if open_copy is None:
                found.append((call.name, EXPLICIT, call.t0, call.t1, call.site))
            else:
                found[-1] = (f"{open_copy.name} + {call.name}", PAGEABLE_COPY, open_copy.t0, call.t1, open_copy.site)
            open_copy = None
            continue
        if kind is _QUESTION:
            continue
        open_copy = None
        copy = copies.get(call.id, "")
        if kind is _BLOCKING_COPY and not copy.startswith("Memcpy DtoD"):
            found.append((call.name, BLOCKING, call.t0, call.t1, call.site))
        elif kind is _FREE:
            found.append((call.name, FREE, call.t0, call.t1, call.site))
        elif kind is _ASYNC_COPY and _TO_PAGEABLE.match(copy):
            found.append((call.name, PAGEABLE_COPY, call.t0, call.t1, call.site))
            open_copy = call
    return list(_placed(a, found))


def _kind_of(name: str) -> re.Pattern[str] | None:
    """What a call does, as the pattern that its name matches; none for one that neither waits nor asks."""
    kinds = (_SYNCHRONIZE, _QUESTION, _BLOCKING_COPY, _FREE, _ASYNC_COPY)
    return next((kind for kind in kinds if kind.match(name)), None)


def _copies_by_launch(a: Attribution) -> dict[int, str]:
    """Names of copies by call, for copies that were not launched by a graph."""
    copies = a.ops[(a.ops["kind"] == MEMCPY) & (a.ops["launch"] >= 0) & ~a.ops["via_graph"]]
    return dict(zip(a.launches.index[copies["launch"]].tolist(), copies["name"].tolist(), strict=True))


def _placed(a: Attribution, found: Sequence[tuple[str, str, int, int, str]]) -> Iterator[Wait]:
    t0, t1 = [w[2] for w in found], [w[3] for w in found]
    rounds = place(a.steps, t0, t1, np.ones(len(found), dtype=bool)).tolist()
    for (api, kind, begin, end, site), at, index in zip(found, innermost(a.spans, t0, t1), rounds, strict=True):
        rule = a.spans[at].rule if at >= 0 else None
        is_inside = index >= 0 and end <= a.steps[index].t1
        phase = (rule.phase if rule else None) or ("host" if is_inside else "status")
        kind = LATE if rule and rule.late else kind
        yield Wait(api=api, kind=kind, phase=phase, round=index, t0=begin, t1=end, site=site)


def sync_figures(waits: Sequence[Wait], rounds: Rounds) -> tuple[SyncFigures, ...]:
    """Waits of the analysed rounds by place and call, in the order of a round."""
    held = {s.index for s in rounds.steps}
    by_place: defaultdict[tuple[int, str, str, str], list[Wait]] = defaultdict(list)
    for wait in waits:
        if wait.round in held:
            by_place[PHASES.index(wait.phase), wait.kind, wait.api, wait.site].append(wait)
    return tuple(
        SyncFigures(
            phase=PHASES[phase],
            api=api,
            kind=kind,
            per_round=len(mine) / rounds.num,
            wait_ns=sum(w.t1 - w.t0 for w in mine) / rounds.num,
            site=site,
        )
        for (phase, kind, api, site), mine in sorted(by_place.items())
    )


def syncs_per_round(figures: Sequence[SyncFigures]) -> float:
    """Waits for the newest step. Waits for an older step block the host too, but leave the GPU work to do."""
    return sum(item.per_round for item in figures if item.kind != LATE)
