"""Steady decode rounds that an engine runs under a profiler, and what it knows about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from specbench.harness.engines.ranges import Ranges

TRACED = "SPECBENCH_TRACED"  # of the environment: the tool that an engine's own processes prepare for before they begin


class Tracer(Protocol):
    """`arm` is called before the batch is filled, `begin` and `end` around the rounds, whose ranges are `ranges`.

    What fails after `arm` and before `end` calls `drop` instead of `end`: nothing is traced any more, nor kept. An
    engine in a process of its own is told the `tool` (nsys, torch, none) and the `path` that torch's profiler writes.
    """

    tool: str
    path: Path | None
    ranges: Ranges
    sees_nodes: bool  # whether the operations of captured graphs are to be counted first

    def of_rank(self) -> Callable[[int], Tracer]:
        """What makes such a tracer in the process of a rank; it can be pickled. ValueError where there is none."""
        ...

    def arm(self) -> None: ...

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def drop(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeMap:
    """One captured segment. `parts`: (phase of a profile, draft step, kernel, memcpy and memset nodes)."""

    segment: str
    batch_size: int  # of the captured layout, padding included
    parts: tuple[tuple[str, int | None, int], ...]

    @property
    def total(self) -> int:
        return sum(count for _, _, count in self.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class SteadyRounds:
    """What host and engine saw of the rounds. `syncs`: blocking reads a round by the engine's names; None where it does
    not count them. `unprofiled_ns`: rounds of the same process before the profiler, where there were any."""

    batch_size: int
    round_ns: tuple[int, ...]  # from the start of a step to the start of the next, host clock
    syncs_per_round: float | None
    syncs: dict[str, float]
    host_phases_ns: dict[str, float]  # median by phase where launches are synchronous (CPU); else empty
    unprofiled_ns: tuple[int, ...] = ()

    @property
    def median_ns(self) -> float:
        return float(median(self.round_ns))


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """`claimed_parts`: how each part of a round runs that these rounds have; no drafter, no claim about one.
    `notes`: what a reader of the profile must know."""

    rounds: SteadyRounds
    graph_plan: str
    num_drafts: int
    claimed_parts: Mapping[str, str]
    node_maps: tuple[NodeMap, ...]
    notes: tuple[str, ...]
