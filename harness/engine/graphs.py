"""Graph plans: which neighbouring phases of a decode round are captured together, and their replay.

Plans (decode rounds only; mixed steps run eagerly):
  none  every phase launched by the host
  full  target graph (advance, verify, accept), then one graph for the first drafter pass, one for the later passes
  one   the whole round in one graph
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

import torch

from specbench.harness.measure.phase_clock import END, GAP, EventClock, NullClock, PhaseClock
from specbench.harness.measure.ranges import Ranges

from .batch import StepBatch, decode_batch
from .round import RoundBuilder
from .sampler import SamplingMode
from .state import RoundState
from .strategy import Phase

GRAPH_PLANS = ("none", "full", "one")
_TARGET_PHASES = ("advance", "verify", "accept")
_NUM_CAPTURE_WARM_UPS = 2  # JIT compilation and cuBLAS workspaces must be done before a capture


@dataclass(frozen=True, slots=True)
class Segment:
    """Phases launched as one unit."""

    name: str
    phases: tuple[Phase, ...]

    def run(self, batch: StepBatch, clock: PhaseClock) -> None:
        for phase in self.phases:
            clock.mark(phase.name)
            phase.run(batch)


def split_round(plan: str, phases: list[Phase]) -> list[Segment]:
    """Neighbouring phases grouped as the plan says."""
    if plan == "none":
        return [Segment(p.name, (p,)) for p in phases]
    if plan == "one":
        return [Segment("round", tuple(phases))]
    groups: dict[str, list[Phase]] = {}
    for phase in phases:
        groups.setdefault("target" if phase.name in _TARGET_PHASES else phase.name, []).append(phase)
    return [Segment(name, tuple(members)) for name, members in groups.items()]


def capture_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes (requests) worth a graph: 1, 2, 4, then multiples of 8 (of 16 beyond 64) up to the largest batch."""
    sizes = {1, 2, 4, *range(8, 65, 8), *range(80, max_num_seqs + 1, 16), max_num_seqs}
    return sorted(size for size in sizes if size <= max_num_seqs)


class EagerRound:
    """A decode round launched phase by phase: the CPU's way, and the reference of every graph."""

    graph = "none"

    def __init__(self, batch: StepBatch, phases: list[Phase]):
        self.batch = batch
        self._segments = split_round("none", phases)

    def launch(self, ranges: Ranges, clock: PhaseClock) -> None:
        for segment in self._segments:
            with ranges.range(segment.name):
                segment.run(self.batch, clock)
        clock.mark(END)


class CapturedRound:
    """A decode round as CUDA graphs over one persistent layout."""

    def __init__(self, plan: str, batch: StepBatch, phases: list[Phase], pool, instrumented: bool = False):
        self.graph = plan
        self.batch = batch
        self._segments = split_round(plan, phases)
        self.inner_clock: PhaseClock = EventClock(external=True) if instrumented else NullClock()
        self._graphs: list[tuple[str, torch.cuda.CUDAGraph]] = []
        self._capture(pool)

    def _capture(self, pool) -> None:
        null = NullClock()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_NUM_CAPTURE_WARM_UPS):
                for segment in self._segments:
                    segment.run(self.batch, null)
        torch.cuda.current_stream().wait_stream(side)
        for index, segment in enumerate(self._segments):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                segment.run(self.batch, self.inner_clock)
                self.inner_clock.mark(END if index == len(self._segments) - 1 else GAP)
            self._graphs.append((segment.name, graph))

    def launch(self, ranges: Ranges, clock: PhaseClock) -> None:
        for name, graph in self._graphs:
            with ranges.range(name):
                clock.mark(name)
                graph.replay()
        clock.mark(END)


class RoundLauncher:
    """Finds the round for a batch size: captured at the next larger size, or eager where no graph was asked for."""

    def __init__(self, plan: str, builder: RoundBuilder, state: RoundState, max_num_seqs: int):
        assert plan in GRAPH_PLANS
        self.plan = plan
        self._builder = builder
        self._state = state
        self._sizes = capture_sizes(max_num_seqs) if plan != "none" else []
        self._pool = torch.cuda.graph_pool_handle() if plan != "none" else None
        self._rounds: dict[tuple[int, SamplingMode], EagerRound | CapturedRound] = {}

    def capture(self, modes: list[SamplingMode], progress: Callable[[int, int], None] | None = None) -> None:
        """Captures every size for the given modes, largest first so that the smaller ones reuse its memory."""
        todo = [(size, mode) for size in reversed(self._sizes) for mode in modes]
        for index, (size, mode) in enumerate(todo):
            self.round_for(size, mode)
            if progress:
                progress(index + 1, len(todo))

    def round_for(self, num_requests: int, mode: SamplingMode) -> EagerRound | CapturedRound:
        size = num_requests
        if self._sizes:
            size = self._sizes[bisect.bisect_left(self._sizes, num_requests)]
        key = (size, mode)
        if key not in self._rounds:
            self._rounds[key] = self._make(size, mode)
        return self._rounds[key]

    def instrumented(self, num_requests: int, mode: SamplingMode) -> CapturedRound:
        """A second capture of the round with events at its phase boundaries."""
        assert self.plan != "none"
        batch = decode_batch(self._state, num_requests)
        return CapturedRound(self.plan, batch, self._builder.phases(batch, mode), self._pool, instrumented=True)

    def _make(self, size: int, mode: SamplingMode) -> EagerRound | CapturedRound:
        batch = decode_batch(self._state, size)
        phases = self._builder.phases(batch, mode)
        if self.plan == "none":
            return EagerRound(batch, phases)
        return CapturedRound(self.plan, batch, phases, self._pool)
