"""Steady decode rounds that an engine runs under a profiler, and what the engine knows about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from specbench.harness.engines.ranges import Ranges

# Environment variable: the tool for which an engine's own processes prepare before they start.
TRACED = "SPECBENCH_TRACED"


class Tracer(Protocol):
    """`arm` is called before the batch is filled, `begin` and `end` around the rounds, whose ranges are `ranges`.

    On a failure between `arm` and `end`, `drop` is called instead of `end`: tracing stops and nothing is kept. An
    engine in a separate process is given the `tool` (nsys, torch, none) and the `path` that torch's profiler writes.
    """

    tool: str
    path: Path | None
    ranges: Ranges
    sees_nodes: bool  # whether the operations of captured graphs are to be counted first

    def of_rank(self) -> Callable[[int], Tracer]:
        """A picklable factory of such a tracer for the process of a rank. ValueError if there is none."""
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
    """What host and engine recorded about the rounds. `syncs`: blocking reads per round by the engine's names; None if
    it does not count them. `unprofiled_ns`: rounds of the same process before the profiler, if there were any."""

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
    """`claimed_parts`: how each part of these rounds runs; without a drafter, there is no claim about one. `notes`: for
    the reader of the profile."""

    rounds: SteadyRounds
    graph_plan: str
    num_drafts: int
    claimed_parts: Mapping[str, str]
    node_maps: tuple[NodeMap, ...]
    notes: tuple[str, ...]
