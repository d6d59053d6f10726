"""The record of an analysed trace: frozen dataclasses, which `profile_file.py` writes and reads.

Durations are nanoseconds on the trace's clock, under a profiler: compare shares, counts and differences, and do not
read absolute times as speed. "A round" is one step of the engine; figures "per round" are means over the analysed
rounds, unless a name says median. `phase`: a word of `PHASES`. `draft_step`: counts drafter passes from 0, else None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA = "specbench.profile/1"

# In the order of a round. `host` phases have no GPU work of their own; `other` is work in a round outside any phase.
PHASES = ("prefill", "mixed", "advance", "verify", "accept", "compact", "draft", "status", "host", "other")
MAX_SLOW_DOWN = 1.5  # profiled round / unprofiled round
LATE = "late"  # the kind of SyncFigures that `syncs_per_round` leaves out


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where the figures come from. `kind`: nsys or kineto. `tool`: name and version from the file, else None."""

    kind: str
    file: str  # name without its folder
    sha256: str
    num_bytes: int
    tool: str | None = None
    schema_version: str | None = None  # of the nsys export
    command: tuple[str, ...] | None = None  # the profiled program's argv
    is_command_given: bool = False  # by the user; else the trace holds it
    working_dir: str | None = None
    devices: tuple[str, ...] = ()  # names of the GPUs


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What was profiled, if specbench made the trace itself."""

    arm: str
    strategy: str
    config: Mapping[str, Any]  # the arm's resolved choices
    graph_plan: str  # as the row claims it; GraphPlan.described()
    batch_size: int
    num_drafts: int
    claimed_parts: Mapping[str, str]  # target, first, later -> mode that the plan claims for decode rounds
    engine_syncs_per_round: float | None  # the engine's own count over the same rounds
    profiler_argv: tuple[str, ...] | None = None  # the whole command that made the trace


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseFigures:
    """One phase (of one drafter pass), per round."""

    phase: str
    draft_step: int | None
    host_ns: float | None  # length of its ranges; None if it is inside a graph with other phases
    gpu_busy_ns: float  # union of its operations' intervals
    gpu_span_ns: float  # last end - first start
    busy_share: float  # of the busy time of all rounds
    kernels: float
    graph_kernels: float
    eager_launches: float
    graph_launches: float  # of graphs whose first operation is this phase's
    graph_share_kernels: float | None  # None without kernels
    graph_share_time: float | None
    ranges: float | None = None  # None in profiles that were made before they were counted
    attention: float | None = None  # kernels of attention; the same


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPhase:
    """One phase (of one drafter pass) without a GPU, per round."""

    phase: str
    draft_step: int | None
    host_ns: float  # of its ranges, without nested ones
    ranges: float
    attention: float  # calls of attention operators


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphCertificate:
    """Whether the parts that a row claims to run as graphs did. `verdict`: holds, void, no claim, cannot tell."""

    verdict: str
    reasons: tuple[str, ...]
    launches_per_round: float | None  # eager launch calls and graph launches; None without a GPU
    graph_launches_per_round: float | None
    graph_share_kernels: float | None
    graph_share_time: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncFigures:
    """One kind of host wait in one place. `site`: the Python line that waits, if the trace has the program's stacks.
    `kind`: explicit, blocking-copy, pageable-copy (with the synchronise call after it: one read), free (of device or
    pinned memory, which waits for the whole device), or late (for an older step than the newest; not in
    `syncs_per_round`)."""

    phase: str
    api: str
    kind: str
    per_round: float
    wait_ns: float  # per round
    site: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdleFigures:
    """GPU idle time in rounds, per round, by cause: host-late, launch-latency-or-dependency, back-to-back."""

    total_ns: float | None  # None without a GPU
    by_cause_ns: Mapping[str, float]
    verify_to_draft_span_ns: float | None  # median; last operation of verify to first of draft; negative: overlapped
    verify_to_draft_idle_ns: float | None  # median
    verify_to_draft_by_cause_ns: Mapping[str, float]  # means
    num_overlapped: int
    by_round_ns: tuple[float, ...] = ()  # the total, round by round; as the next one, empty in older profiles
    verify_to_draft_by_round_ns: tuple[float, ...] = ()


IDLE_UNKNOWN = IdleFigures(
    total_ns=None,
    by_cause_ns={},
    verify_to_draft_span_ns=None,
    verify_to_draft_idle_ns=None,
    verify_to_draft_by_cause_ns={},
    num_overlapped=0,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFigures:
    """One kernel (or copy) in one phase, per round. `share`: of the busy time summed over operations."""

    name: str
    phase: str
    draft_step: int | None
    calls: float
    total_ns: float
    mean_ns: float
    in_graph: float  # calls per round that a graph launched
    share: float
    is_attention: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A rectangle in the timeline of the median round, times from its start. `row`: host, sync or gpu:<stream>."""

    row: str
    name: str
    phase: str
    draft_step: int | None
    t0_ns: int
    t1_ns: int
    via_graph: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """How far the figures can be trusted. `verdict`: good, doubtful (with a warning) or refused (no phase figures)."""

    verdict: str
    attributed_share: float  # share of the operations' busy time that has a phase
    num_ops: int
    num_ops_without_launch: int
    num_ops_without_round: int
    num_rounds: int
    num_rounds_left_out: int  # incomplete at the edges of the capture, or not decode rounds
    notes: tuple[str, ...]  # what else a reader must know: dropped buffers, fallbacks taken and how often


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowDown:
    """The profiled rounds against an unprofiled twin of the same process layout, host clock, medians."""

    profiled_round_ns: float
    unprofiled_round_ns: float

    @property
    def ratio(self) -> float:
        return self.profiled_round_ns / self.unprofiled_round_ns


@dataclass(frozen=True, kw_only=True, slots=True)
class Replays:
    """The `first`-th graph that a round replays (from 1), `num` times in succession; kernels and time of one replay."""

    first: int
    num: int
    kernels: int
    attention: int
    gpu_busy_ns: float
    rounds: float  # share of those that replay this same sequence of graphs


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundFigures:
    """Figures of the analysed rounds, one entry per round: `launches` (eager) and graph launches; `syncs` and `wait_ns`
    without late waits, which are in `late_wait_ns`."""

    round_ns: tuple[float, ...]  # of the rounds that another one follows
    gpu_busy_ns: tuple[float, ...]
    launches: tuple[float, ...]
    graph_launches: tuple[float, ...]
    syncs: tuple[float, ...]
    wait_ns: tuple[float, ...]
    late_wait_ns: tuple[float, ...] = ()  # empty in older profiles


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """One analysed trace. Without a GPU there are `host_phases` and ranges in the timeline, but no launches."""

    source: Source
    subject: Subject | None
    round_ns: float  # median length of a round, start to next start where rounds follow each other
    gpu_busy_ns: float | None  # per round, union over all operations
    gpu_busy_share: float | None  # of the round
    phases: tuple[PhaseFigures, ...]
    graph: GraphCertificate
    syncs: tuple[SyncFigures, ...]
    syncs_per_round: float | None
    idle: IdleFigures
    kernels: tuple[KernelFigures, ...]  # by total time, the largest first; attention ones always kept
    timeline: tuple[Bar, ...]  # the median round
    timeline_round: int
    quality: Quality
    slow_down: SlowDown | None = None
    told_batch_size: int | None = None  # in the names of ranges, the same in every round
    host_phases: tuple[HostPhase, ...] = ()
    replays: tuple[Replays, ...] = ()
    rounds: RoundFigures | None = None  # None in profiles that were made before they were kept, and without a GPU
    schema: str = SCHEMA

    @property
    def drafter(self) -> tuple[PhaseFigures, ...]:
        """The drafter passes, if ranges distinguish them all; else every phase that drafts."""
        drafting = tuple(p for p in self.phases if p.phase == "draft")
        passes = tuple(p for p in drafting if p.draft_step is not None)
        is_one = self.subject is not None and self.subject.num_drafts == 1
        return passes if len(passes) > 1 or is_one else drafting

    @property
    def is_slowed(self) -> bool:
        """Whether the slow-down is too large for host and idle times to be those of an unprofiled round."""
        return self.slow_down is not None and self.slow_down.ratio > MAX_SLOW_DOWN

    @property
    def is_host_only(self) -> bool:
        return self.gpu_busy_ns is None

    @property
    def batch_size(self) -> int | None:
        """None: unknown, or not the same in all rounds."""
        return self.subject.batch_size if self.subject else self.told_batch_size
