"""Which round and which phase every GPU operation of a process belongs to: by the call that launched it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .graph_phases import NodeMaps, Part, orders, parts_by_creation, roots_of
from .record import PHASES, Subject
from .spans import Span, Step, innermost, is_between_steps, main_thread, steps_of
from .trace_db import GRAPH, ProcessTrace

if TYPE_CHECKING:
    from .node_map import NodeMap

NO_PHASE = -1


@dataclass(kw_only=True, slots=True)
class Attribution:
    """Columns over `ops` (in time order), one process. `spans`: the main thread's, without steps.

    phase: number in PHASES; draft: draft step; round: index of a step; span: index in `spans`; -1 where there is none.
    own_ns: the operation's time that no operation begun before it on the device covers; these sum to the union.
    via_graph: launched by a graph; opens_replay: the first operation of its graph launch.
    """

    ops: NDArray[np.void]
    launches: NDArray[np.void]
    call_tid: int  # the number that the main thread has in calls
    spans: Sequence[Span]
    steps: Sequence[Step]
    span_round: NDArray[np.int64]
    span_draft: NDArray[np.int64]
    phase: NDArray[np.int64]
    draft: NDArray[np.int64]
    round: NDArray[np.int64]
    span: NDArray[np.int64]
    own_ns: NDArray[np.int64]
    via_graph: NDArray[np.bool_]
    opens_replay: NDArray[np.bool_]
    notes: list[str] = field(default_factory=list)

    @property
    def busy_ns(self) -> NDArray[np.int64]:
        return self.ops["t1"] - self.ops["t0"]


def attribute(
    trace: ProcessTrace, spans: Sequence[Span], maps: Sequence[NodeMap], subject: Subject | None
) -> Attribution:
    """`spans`: of all threads of the process, in time order. ValueError where nothing says where a step begins."""
    tid = main_thread(spans)
    own = [s for s in spans if s.range.tid == tid]
    steps, phases = steps_of(own, trace.file), [s for s in own if not s.rule.step]
    notes: list[str] = []
    span_round = place(steps, *_bounds(phases), np.array([is_between_steps(s.rule) for s in phases], dtype=bool))
    launches, ops = trace.launches, trace.ops
    call_tid = tid
    if len(launches) and not (launches["tid"] == tid).any():
        notes.append("threads of calls and ranges carry different numbers; calls were matched to ranges by time alone")
        call_tid = Counter(launches["tid"].tolist()).most_common(1)[0][0]
    on_thread = launches["tid"] == call_tid
    launch_span = np.full(len(launches), -1, dtype=np.int64)
    mine = launches[on_thread]
    launch_span[on_thread] = innermost(phases, mine["t0"].tolist(), mine["t1"].tolist())
    may_stand_between = np.array([*(is_between_steps(s.rule) for s in phases), False])[launch_span]
    launch_round = place(steps, launches["t0"], launches["t1"], may_stand_between)
    launch_round[~on_thread] = -1
    via_graph = np.append(launches["via_graph"], False)[ops["launch"]]
    found = Attribution(
        ops=ops,
        launches=launches,
        call_tid=call_tid,
        spans=phases,
        steps=steps,
        span_round=span_round,
        span_draft=_draft_steps(phases, span_round),
        phase=np.full(len(ops), NO_PHASE, dtype=np.int64),
        draft=np.full(len(ops), -1, dtype=np.int64),
        round=_of_launch(launch_round, ops),
        span=_of_launch(launch_span, ops),
        own_ns=own_time(ops),
        via_graph=via_graph,
        opens_replay=_first_of_replays(ops, via_graph),
        notes=notes,
    )
    _by_launch(found)
    _by_capture(found, NodeMaps(maps, subject), trace)
    _by_creation(found, trace, spans)
    return found


def place(
    steps: Sequence[Step], t0: NDArray[np.int64], t1: NDArray[np.int64], between: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The step that each interval lies in, or that it follows where `between` allows that; else -1."""
    if not len(t0):
        return np.empty(0, dtype=np.int64)
    starts, ends, nexts = (np.array([getattr(s, name) for s in steps]) for name in ("t0", "t1", "end"))
    step = np.searchsorted(starts, t0, side="right") - 1
    inside = (step >= 0) & ((t1 <= ends[step]) | (between & (t0 <= nexts[step])))
    return np.where(inside, step, -1)


def own_time(ops: NDArray[np.void]) -> NDArray[np.int64]:
    """The part of each operation that none before it (by start, on its device) covers."""
    own = np.zeros(len(ops), dtype=np.int64)
    for dev in np.unique(ops["dev"]):
        at = np.flatnonzero(ops["dev"] == dev)
        covered = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ops["t1"][at])[:-1]])
        own[at] = np.maximum(0, ops["t1"][at] - np.maximum(ops["t0"][at], covered))
    return own


def _first_of_replays(ops: NDArray[np.void], via_graph: NDArray[np.bool_]) -> NDArray[np.bool_]:
    graph = np.flatnonzero(via_graph)
    _, first = np.unique(ops["launch"][graph], return_index=True)
    opens = np.zeros(len(ops), dtype=bool)
    opens[graph[first]] = True
    return opens


def _bounds(spans: Sequence[Span]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return (np.array([s.t0 for s in spans], dtype=np.int64), np.array([s.t1 for s in spans], dtype=np.int64))


def _of_launch(values: NDArray[np.int64], ops: NDArray[np.void]) -> NDArray[np.int64]:
    """A launch's value at each of its operations; -1 where an operation has no launch."""
    return np.append(values, -1)[ops["launch"]]


def _draft_steps(spans: Sequence[Span], span_round: NDArray[np.int64]) -> NDArray[np.int64]:
    """Draft step of each span: as its rule says, or counted among its like within its round."""
    seen: Counter[tuple[int, str]] = Counter()
    found = np.full(len(spans), -1, dtype=np.int64)
    for index, (span, number) in enumerate(zip(spans, span_round.tolist(), strict=True)):
        rule = span.rule
        if rule.draft_step is not None:
            found[index] = rule.draft_step
        elif rule.counts_from is not None and number >= 0:
            found[index] = rule.counts_from + seen[number, rule.pattern]
            seen[number, rule.pattern] += 1
    return found


def _by_launch(a: Attribution) -> None:
    """The phase of the innermost range around the launch."""
    code = [PHASES.index(s.rule.phase) if s.rule.phase else NO_PHASE for s in a.spans]
    a.phase[:] = np.array([*code, NO_PHASE])[a.span]
    a.draft[:] = np.append(a.span_draft, -1)[a.span]


def _by_capture(a: Attribution, maps: NodeMaps, trace: ProcessTrace) -> None:
    """Splits replays of captured segments."""
    roots = roots_of(trace.nodes)
    unknown: Counter[str] = Counter()
    num_disagreements = 0
    for _, at in _replays(a):
        rule = a.spans[a.span[at[0]]].rule if a.span[at[0]] >= 0 else None
        if rule is None or rule.segment is None or rule.phase is not None or a.ops["kind"][at[0]] == GRAPH:
            continue
        if not maps.knows(rule.segment):
            unknown[rule.segment] += 1
            continue
        parts = maps.split(rule.segment, len(at))
        if parts is None:
            continue
        assigned = []
        for order in orders(a.ops[at], roots):
            of_op: list[Part] = [("", None)] * len(at)
            for position, part in zip(order.tolist(), parts, strict=True):
                of_op[position] = part
            assigned.append(of_op)
        num_disagreements += assigned[0] != assigned[-1]
        _assign(a, at, assigned[0])
    a.notes += maps.notes()
    a.notes += [
        f"graph {name!r}: no counts from its capture; {n} launches left without a phase" for name, n in unknown.items()
    ]
    if num_disagreements:
        a.notes.append(
            f"{num_disagreements} replays ran in another order than they were captured in; phases follow the capture"
        )


def _by_creation(a: Attribution, trace: ProcessTrace, spans: Sequence[Span]) -> None:
    """Splits replays whose nodes were made under ranges of several phases, or that no range encloses."""
    if not len(trace.nodes):
        return
    by_thread: defaultdict[int, list[Span]] = defaultdict(list)
    for span in spans:
        if not span.rule.step:
            by_thread[span.range.tid].append(span)
    part_of = parts_by_creation(trace.nodes, roots_of(trace.nodes), by_thread)
    num_split = 0
    for _, at in _replays(a):
        parts = [part_of.get(node) for node in a.ops["node"][at].tolist()]
        rule = a.spans[a.span[at[0]]].rule if a.span[at[0]] >= 0 else None
        is_counted = rule is not None and rule.segment is not None and a.phase[at[0]] != NO_PHASE
        if is_counted or None in parts or (len(set(parts)) == 1 and a.phase[at[0]] != NO_PHASE):
            continue
        _assign(a, at, [part for part in parts if part is not None])
        num_split += 1
    if num_split:
        a.notes.append(f"{num_split} replays split into phases by the ranges that their nodes were made under")


def _assign(a: Attribution, at: NDArray[np.int64], parts: Sequence[Part]) -> None:
    a.phase[at] = [PHASES.index(phase) for phase, _ in parts]
    a.draft[at] = [-1 if step is None else step for _, step in parts]


def _replays(a: Attribution) -> list[tuple[int, NDArray[np.int64]]]:
    """(launch, positions of its operations in time order) of every graph launch."""
    graph = np.flatnonzero(a.via_graph)
    if not len(graph):
        return []
    graph = graph[np.argsort(a.ops["launch"][graph], kind="stable")]
    launches, first = np.unique(a.ops["launch"][graph], return_index=True)
    return list(zip(launches.tolist(), np.split(graph, first[1:]), strict=True))
