"""Decode rounds as launches: phases grouped and captured according to a graph plan (plans.py), and replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

import torch

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.clock import END, GAP, NullClock, PhaseClock
from specbench.harness.engines.native.core.forward import GraphPool, capturing, warm_up
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.strategy import Phase
from specbench.harness.engines.native.core.upload import send_into
from specbench.harness.engines.ranges import PREPARE, STATUS, Ranges
from specbench.harness.spec.plans import GraphPlan, part_of

_NULL = NullClock()


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring phases that are launched as one unit, and how."""

    name: str
    mode: str  # one of plans.MODES
    phases: tuple[Phase, ...]

    @property
    def is_captured(self) -> bool:
        return self.mode in ("full", "one")

    @property
    def holds_acceptance(self) -> bool:
        return any(phase.name == "accept" for phase in self.phases)

    @property
    def host_range(self) -> str | None:
        """The name in a trace of the host's work before the launch; None if there is none. Never the name of a phase
        with device work, whose range contains its launches and nothing else."""
        if all(phase.prepare is None for phase in self.phases):
            return None
        return PREPARE if part_of(self.phases[0].name) else self.name

    def prepare(self, batch: StepBatch, host: HostView) -> None:
        for phase in self.phases:
            if phase.prepare is not None:
                phase.prepare(batch, host)

    def run(self, batch: StepBatch, clock: PhaseClock) -> None:
        for phase in self.phases:
            clock.mark(phase.name)
            phase.run(batch)


def split_round(plan: GraphPlan, phases: list[Phase]) -> list[Segment]:
    """Neighbouring captured phases of the same part and mode form a segment; every other phase is its own segment."""

    def key(item: tuple[int, Phase]) -> tuple[str, str | int]:
        index, phase = item
        mode = plan.mode_of(phase.name)
        return mode, {"one": "round", "full": part_of(phase.name) or ""}.get(mode, index)

    segments = []
    for (mode, name), members in groupby(enumerate(phases), key=key):
        group = tuple(phase for _, phase in members)
        segments.append(Segment(name if isinstance(name, str) else group[0].name, mode, group))
    return segments


@dataclass(frozen=True, slots=True)
class EagerLaunch:
    """A segment whose kernels the host launches one by one."""

    segment: Segment
    batch: StepBatch

    def __call__(self, clock: PhaseClock) -> None:
        self.segment.run(self.batch, clock)


class GraphLaunch:
    """The segment's phases as one CUDA graph, captured here. `inner` marks phases inside the capture."""

    def __init__(
        self, segment: Segment, batch: StepBatch, pool: GraphPool, inner: PhaseClock = _NULL, closing_mark: str = END
    ):
        self.segment = segment
        self.batch = batch
        with capturing(pool) as self._graph:
            segment.run(batch, inner)
            inner.mark(closing_mark)

    def __call__(self, clock: PhaseClock) -> None:
        clock.mark(self.segment.name)
        self._graph.replay()


class DecodeRound:
    """A decode round over one persistent layout."""

    def __init__(
        self,
        plan: GraphPlan,
        batch: StepBatch,
        phases: list[Phase],
        pool: GraphPool,
        capture_host: Callable[[StepBatch], HostView],
        inner_clock: PhaseClock = _NULL,
    ):
        """`capture_host` makes the host view for the warm-ups before a capture; `inner_clock` gets the phases inside
        the captures."""
        self.graph = plan.target
        self.batch = batch
        self.inner_clock = inner_clock
        segments = split_round(plan, phases)
        if any(segment.is_captured for segment in segments):
            warm_up(lambda: self._run_once(segments, capture_host(batch)))
        self._launches: list[EagerLaunch | GraphLaunch] = []
        for index, segment in enumerate(segments):
            closing = END if index == len(segments) - 1 else GAP
            self._launches.append(
                GraphLaunch(segment, batch, pool, self.inner_clock, closing)
                if segment.is_captured
                else EagerLaunch(segment, batch)
            )
        # Determined once, because the answers do not change and launches are time-critical.
        self._order = [(x, x.segment, x.segment.host_range, x.segment.holds_acceptance) for x in self._launches]

    def assign(self, slots: tuple[int, ...], state: RoundState) -> None:
        """Sets the requests of the next launch by their slots; padding rows belong to the dummy slot."""
        if slots != self.batch.slots:
            padding = [state.dummy_slot] * (self.batch.num_requests - len(slots))
            send_into(self.batch.rows.slot_B, torch.tensor([*slots, *padding], dtype=torch.int64))
            self.batch.slots = slots

    @property
    def segments(self) -> list[Segment]:
        """The launches, in order; captured ones were captured in this order too."""
        return [launch.segment for launch in self._launches]

    @property
    def needs_host(self) -> bool:
        """Whether the host works between launches: plans attention, or reads what was accepted."""
        return any(p.prepare is not None for launch in self._launches for p in launch.segment.phases)

    def _run_once(self, segments: list[Segment], host: HostView) -> None:
        for segment in segments:
            segment.prepare(self.batch, host)
            segment.run(self.batch, _NULL)
            if segment.holds_acceptance:
                host.acceptance_launched()

    def launch(self, ranges: Ranges, clock: PhaseClock, host: HostView) -> None:
        for launch, segment, host_range, holds_acceptance in self._order:
            if host_range is not None:
                with ranges.range(host_range):
                    segment.prepare(self.batch, host)
            with ranges.range(segment.name):
                launch(clock)
            if holds_acceptance:
                with ranges.range(STATUS):
                    host.acceptance_launched()
        clock.mark(END)
