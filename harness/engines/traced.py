"""Steady decode rounds that an engine runs under a profiler, and what it knows about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from specbench.harness.engines.ranges import Ranges


class Tracer(Protocol):
    """`arm` is called before the batch is filled, `begin` and `end` around the rounds, whose ranges are `ranges`.

    What fails after `arm` and before `end` calls `drop` instead of `end`: nothing is traced any more, nor kept.
    """

    ranges: Ranges
    sees_nodes: bool  # whether the operations of captured graphs are to be counted first

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
    """What host and engine saw of the rounds. `syncs`: blocking reads a round by the engine's names."""

    batch_size: int
    round_ns: tuple[int, ...]  # from the start of a step to the start of the next, host clock
    syncs_per_round: float
    syncs: dict[str, float]
    host_phases_ns: dict[str, float]  # median by phase where launches are synchronous (CPU); else empty

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
