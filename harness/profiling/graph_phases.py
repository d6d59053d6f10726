"""Phases inside one graph launch: by the counts made at its capture, or by the ranges in which its nodes were created.

A replay is one call, so launch times cannot separate its phases. Our captures are linear: the k-th operation of a
replay is the k-th captured node (node_map.py). A replay whose number of operations differs from the count is not split.
Graphs of other engines that were captured while the trace ran are split by the range that was open when each node was
created, following `originalGraphNodeId` back to the captured node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench.harness.engines.traced import NodeMap

from .record import Subject
from .spans import Span, innermost

Part = tuple[str, int | None]  # phase, draft step


class NodeMaps:
    """The counts of a run's captures, by segment."""

    def __init__(self, maps: Sequence[NodeMap], subject: Subject | None):
        self._maps = maps
        self._batch_size = subject.batch_size if subject else None
        self.misfits: Counter[str] = Counter()  # why launches were left alone

    def knows(self, segment: str) -> bool:
        return any(item.segment == segment for item in self._maps)

    def split(self, segment: str, num_ops: int) -> list[Part] | None:
        """The part of each operation of one replay, in capture order; None if the counts do not determine it."""
        fitting = [m for m in self._maps if m.segment == segment and m.total == num_ops]
        splits = {m.parts for m in fitting}
        if len(splits) > 1:
            splits = {m.parts for m in fitting if m.batch_size == self._captured_size(fitting)}
        if len(splits) == 1:
            return [(phase, step) for phase, step, count in splits.pop() for _ in range(count)]
        if fitting:
            why = f"{num_ops} operations fit captures that split differently"
        else:
            counted = sorted({m.total for m in self._maps if m.segment == segment})
            why = f"{num_ops} operations, where {', '.join(map(str, counted)) or 'nothing'} was counted at capture"
        self.misfits[f"graph {segment!r}: {why}"] += 1
        return None

    def _captured_size(self, maps: Sequence[NodeMap]) -> int | None:
        """The capture that a batch of the subject's size uses: the smallest that fits it."""
        if self._batch_size is None:
            return None
        return min((m.batch_size for m in maps if m.batch_size >= self._batch_size), default=None)

    def notes(self) -> list[str]:
        return [f"{count} launches of {why}; left without a phase" for why, count in sorted(self.misfits.items())]


def roots_of(nodes: pd.DataFrame) -> Mapping[int, int]:
    """Maps each graph node to the captured node that it is a clone of (a clone of a clone, ...)."""
    origin = dict(zip(nodes["node"].tolist(), nodes["orig"].tolist(), strict=True))
    roots = {}
    for node in origin:
        at, seen = node, {node}
        while origin.get(at, -1) > 0 and origin[at] not in seen:
            at = origin[at]
            seen.add(at)
        roots[node] = at
    return roots


def orders(nodes: NDArray[np.int64], starts: NDArray[np.int64], roots: Mapping[int, int]) -> list[NDArray[np.int64]]:
    """Positions of one replay's operations in the possible orders, most reliable first: by captured node, if the trace
    has it for every operation; then by time, and by node at equal times."""
    by_time = np.lexsort([nodes, starts])
    root = [roots.get(node, -1) for node in nodes.tolist()]
    if -1 in root or len(set(root)) < len(root):
        return [by_time]
    return [np.argsort(root, kind="stable"), by_time]


def parts_by_creation(
    nodes: pd.DataFrame, roots: Mapping[int, int], spans: Mapping[int, Sequence[Span]]
) -> dict[int, Part]:
    """The phase of each node, from the range that was open on its thread when the captured node was created. `spans`:
    phase spans in time order, by thread. Nodes created outside any are left out."""
    made = nodes[nodes["node"].isin(set(roots.values()))].drop_duplicates("node")
    found: dict[int, Part] = {}
    for tid, captured in made.groupby("tid"):
        of_thread, times = spans.get(tid, ()), captured["t0"].tolist()
        for node, index in zip(captured["node"].tolist(), innermost(of_thread, times, times), strict=True):
            rule = of_thread[index].rule if index >= 0 else None
            if rule is not None and rule.phase is not None and rule.segment is None:
                found[node] = rule.phase, rule.draft_step
    return {node: found[root] for node, root in roots.items() if root in found}
