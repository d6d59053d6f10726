"""Counts the operations of captured graphs by phase: reads the graph under capture at every phase boundary."""

from __future__ import annotations

from collections.abc import Callable

from specbench.harness.engines.native.core.clock import END, GAP, CountClock
from specbench.harness.engines.native.core.launcher import Launcher
from specbench.harness.engines.native.core.sampler import Mode
from specbench.harness.engines.traced import NodeMap
from specbench.harness.spec.plans import part_of

from .graph_nodes import GraphOperations


def node_counter(count: Callable[[], int]) -> CountClock:
    """A clock inside captures whose time is the number of operations captured so far, over all captures. `count`:
    operations of the graph that is being captured on the current stream."""
    return CountClock("graph_nodes", count, passed_over=frozenset({END, GAP}))


def record_node_maps(
    launcher: Launcher, num_requests: int, mode: Mode, count: Callable[[], int] | None = None
) -> tuple[NodeMap, ...]:
    """Captures the round of this batch size again and counts; empty if no part of it is a graph.

    It is a second capture, so that engines that are not profiled are unaffected. `count` is the driver's by default.
    RuntimeError if it refuses.
    """
    if not launcher.plan.pads:
        return ()
    counter = node_counter(count or GraphOperations())
    probe = launcher.probe(num_requests, mode, counter)
    counts = iter(counter.read())
    draft_step = 0
    maps = []
    for segment in probe.segments:
        parts: list[tuple[str, int | None, int]] = []
        for phase in segment.phases:
            is_draft = part_of(phase.name) in ("first", "later")
            if segment.is_captured:
                name, operations = next(counts)
                assert name == phase.name, f"nodes: counted {name} where {phase.name} was captured"
                parts.append(("draft" if is_draft else name, draft_step if is_draft else None, operations))
            draft_step += is_draft
        if parts:
            maps.append(NodeMap(segment=segment.name, batch_size=probe.batch.num_requests, parts=tuple(parts)))
    assert next(counts, None) is None, "nodes: more was counted than captured"
    return tuple(maps)
