"""Assigns every GPU operation of a process to a round and a phase, by the call that launched it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from specbench.harness.engines.traced import NodeMap

from .graph_phases import NodeMaps, Part, orders, parts_by_creation, roots_of
from .record import PHASES, Subject
from .rules import Rule
from .spans import Span, Step, innermost, is_between_steps, main_thread, steps_of
from .trace_db import GRAPH, ProcessTrace

NO_PHASE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribution:
    """One process. `spans`: the main thread's, without steps; `call_tid`: the number of this thread in calls.

    ops: operations (ProcessTrace.ops), each with: round (index of a step), span (index in `spans`), phase (of PHASES,
    or missing), draft (draft step); -1 if there is none. via_graph: launched by a graph; opens_replay: the first
    operation of its graph launch. ns: its duration; own_ns: the part not covered by operations that began before it on
    the device; these parts sum to the union.
    """

    ops: pd.DataFrame
    launches: pd.DataFrame
    call_tid: int
    spans: Sequence[Span]
    steps: Sequence[Step]
    span_round: NDArray[np.int64]
    span_draft: NDArray[np.int64]
    notes: tuple[str, ...]


def attribute(
    trace: ProcessTrace, spans: Sequence[Span], maps: Sequence[NodeMap], subject: Subject | None
) -> Attribution:
    """`spans`: of all threads of the process, in time order. ValueError if nothing says where a step begins."""
    tid = main_thread(spans)
    on_main = [s for s in spans if s.tid == tid]
    steps, phases = steps_of(on_main, trace.file), [s for s in on_main if not s.rule.step]
    between = np.array([*(is_between_steps(s.rule) for s in phases), False])
    span_round = place(steps, [s.t0 for s in phases], [s.t1 for s in phases], between[:-1])
    span_draft = _draft_steps(phases, span_round)
    launches, ops = trace.launches, trace.ops
    notes: list[str] = []
    call_tid = tid
    if len(launches) and not (launches["tid"] == tid).any():
        notes.append("threads of calls and ranges carry different numbers; calls were matched to ranges by time alone")
        call_tid = Counter(launches["tid"].tolist()).most_common(1)[0][0]
    is_main = launches["tid"] == call_tid
    span = np.full(len(launches), -1, dtype=np.int64)
    span[is_main] = innermost(phases, launches["t0"][is_main].tolist(), launches["t1"][is_main].tolist())
    placed = place(steps, launches["t0"], launches["t1"], between[span])
    # From here on a launch is its position, -1 for an operation without one.
    launch = launches.index.get_indexer(ops["launch"])
    via_graph = np.append(launches["via_graph"], False)[launch]
    ops = ops.assign(
        launch=launch,
        round=np.append(np.where(is_main, placed, -1), -1)[launch],
        span=np.append(span, -1)[launch],
        via_graph=via_graph,
        opens_replay=via_graph & ~pd.Series(launch).duplicated().to_numpy(),
        ns=ops["t1"] - ops["t0"],
        own_ns=_own_time(ops),
    )
    parts = _Parts(ops, phases, span_draft)
    notes += parts.by_capture(NodeMaps(maps, subject), trace)
    notes += parts.by_creation(trace, spans)
    return Attribution(
        ops=ops.assign(phase=pd.Categorical.from_codes(parts.phase, PHASES), draft=parts.draft),
        launches=launches,
        call_tid=call_tid,
        spans=phases,
        steps=steps,
        span_round=span_round,
        span_draft=span_draft,
        notes=tuple(notes),
    )


def place(steps: Sequence[Step], t0: ArrayLike, t1: ArrayLike, between: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The step that contains each interval, or that precedes it if `between` allows that; else -1."""
    t0, t1 = np.asarray(t0, dtype=np.int64), np.asarray(t1, dtype=np.int64)
    starts, ends, nexts = (np.array([getattr(s, name) for s in steps]) for name in ("t0", "t1", "end"))
    step = np.searchsorted(starts, t0, side="right") - 1
    inside = (step >= 0) & ((t1 <= ends[step]) | (between & (t0 <= nexts[step])))
    return np.where(inside, step, -1)


def _own_time(ops: pd.DataFrame) -> pd.Series:
    """The part of each operation not covered by earlier ones (by start, on its device)."""
    covered = ops.groupby("dev")["t1"].cummax().groupby(ops["dev"]).shift(fill_value=np.iinfo(np.int64).min)
    return (ops["t1"] - np.maximum(ops["t0"], covered)).clip(lower=0)


def _draft_steps(spans: Sequence[Span], span_round: NDArray[np.int64]) -> NDArray[np.int64]:
    """Draft step of each span: from its rule, or counted among equal spans within its round."""
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


class _Parts:
    """Phase (number in PHASES) and draft step of every operation: those of the innermost range around the launch,
    unless its graph gives more detail."""

    def __init__(self, ops: pd.DataFrame, spans: Sequence[Span], span_draft: NDArray[np.int64]):
        self._ops, self._spans = ops, spans
        codes = [PHASES.index(s.rule.phase) if s.rule.phase else NO_PHASE for s in spans]
        self.phase = np.array([*codes, NO_PHASE])[ops["span"]]
        self.draft = np.append(span_draft, -1)[ops["span"]]

    def by_capture(self, maps: NodeMaps, trace: ProcessTrace) -> Iterator[str]:
        """Splits replays of captured segments. Yields notes."""
        roots = roots_of(trace.nodes)
        kind, node, t0 = (self._ops[name].to_numpy() for name in ("kind", "node", "t0"))
        unknown: Counter[str] = Counter()
        num_disagreements = 0
        for at, rule in self._replays():
            if rule is None or rule.segment is None or rule.phase is not None or kind[at[0]] == GRAPH:
                continue
            if not maps.knows(rule.segment):
                unknown[rule.segment] += 1
                continue
            parts = maps.split(rule.segment, len(at))
            if parts is None:
                continue
            by_order = [_in_order(parts, order) for order in orders(node[at], t0[at], roots)]
            num_disagreements += by_order[0] != by_order[-1]
            self._assign(at, by_order[0])
        yield from maps.notes()
        for name, n in unknown.items():
            yield f"graph {name!r}: no counts from its capture; {n} launches left without a phase"
        if num_disagreements:
            text = "replays ran in a different order than they were captured; phases follow the capture"
            yield f"{num_disagreements} {text}"

    def by_creation(self, trace: ProcessTrace, spans: Sequence[Span]) -> Iterator[str]:
        """Splits replays whose nodes were created in ranges of several phases, or that no range encloses. Yields
        notes."""
        if trace.nodes.empty:
            return
        by_thread: defaultdict[int, list[Span]] = defaultdict(list)
        for span in spans:
            if not span.rule.step:
                by_thread[span.tid].append(span)
        part_of = parts_by_creation(trace.nodes, roots_of(trace.nodes), by_thread)
        part_of_op = [part_of.get(node) for node in self._ops["node"].tolist()]
        num_split = 0
        for at, rule in self._replays():
            parts = [part for i in at.tolist() if (part := part_of_op[i]) is not None]
            has_phase = self.phase[at[0]] != NO_PHASE
            is_counted = rule is not None and rule.segment is not None and has_phase
            if is_counted or len(parts) < len(at) or (len(set(parts)) == 1 and has_phase):
                continue
            self._assign(at, parts)
            num_split += 1
        if num_split:
            yield f"{num_split} replays split into phases by the ranges in which their nodes were created"

    def _assign(self, at: NDArray[np.int64], parts: Sequence[Part]) -> None:
        self.phase[at] = [PHASES.index(phase) for phase, _ in parts]
        self.draft[at] = [-1 if step is None else step for _, step in parts]

    def _replays(self) -> Iterator[tuple[NDArray[np.int64], Rule | None]]:
        """Positions of the operations of every graph launch, in time order, and the rule of the range around it."""
        graph, span = np.flatnonzero(self._ops["via_graph"]), self._ops["span"].to_numpy()
        for inside in self._ops.iloc[graph].groupby("launch").indices.values():
            at = graph[inside]
            yield at, self._spans[span[at[0]]].rule if span[at[0]] >= 0 else None


def _in_order(parts: Sequence[Part], order: NDArray[np.int64]) -> list[Part]:
    """The part of each operation, where `order` is the operations' positions in the order of capture."""
    return [parts[place] for place in np.argsort(order).tolist()]
