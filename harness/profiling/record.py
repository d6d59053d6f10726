"""The record of an analysed trace: frozen dataclasses, written to `profile.json` and read back by reports.

Durations are nanoseconds on the trace's clock, under a profiler: compare shares, counts and differences, and do not
read absolute times as speed. "A round" is one step of the engine; figures "per round" are means over the analysed
rounds, unless a name says median. `phase` is a word of `PHASES`; `draft_step` counts drafter passes from 0 and
is None outside the drafter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.harness.store.codec import (
    check_nothing_lost,
    checked_schema,
    from_document,
    read_object,
    to_document,
    write_document,
)

SCHEMA = "specbench.profile/1"
FILE = "profile.json"
FAILURE = "failure.json"  # in its place: the arm could not be traced

# In the order of a round. `host` phases have no GPU work of their own; `other` is work in a round outside any phase.
PHASES = ("prefill", "mixed", "advance", "verify", "accept", "compact", "draft", "status", "host", "other")
LATE = "late"  # the kind of SyncFigures that `syncs_per_round` leaves out


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where the figures come from. `kind`: nsys or kineto. `tool`: name and version as the file says it, else None."""

    kind: str
    file: str  # name without its folder
    sha256: str
    num_bytes: int
    tool: str | None = None
    schema_version: str | None = None  # of the nsys export
    command: tuple[str, ...] | None = None  # the profiled program's argv, as the trace holds it
    working_dir: str | None = None
    devices: tuple[str, ...] = ()  # names of the GPUs


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What was profiled, where specbench made the trace itself."""

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
    host_ns: float | None  # length of its ranges; None where it lies inside a graph with other phases
    gpu_busy_ns: float  # union of its operations' intervals
    gpu_span_ns: float  # last end - first start
    busy_share: float  # of the busy time of all rounds
    kernels: float
    graph_kernels: float
    eager_launches: float
    graph_launches: float  # of graphs whose first operation is this phase's
    graph_share_kernels: float | None  # None without kernels
    graph_share_time: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphCertificate:
    """Whether the parts that a row claims to run as graphs did. `verdict`: holds, void, no claim, cannot tell."""

    verdict: str
    reasons: tuple[str, ...]
    launches_per_round: float  # eager launch calls and graph launches
    graph_launches_per_round: float
    graph_share_kernels: float | None
    graph_share_time: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncFigures:
    """One kind of wait of the host in one place. `kind`: explicit, blocking-copy, pageable-copy (with the
    synchronise call behind it: one read), free (of device or pinned memory, which waits for the whole device), or late
    (for an older step than the newest; not in `syncs_per_round`)."""

    phase: str
    api: str
    kind: str
    per_round: float
    wait_ns: float  # per round


@dataclass(frozen=True, kw_only=True, slots=True)
class IdleFigures:
    """GPU idle time in rounds, per round, by cause: host-late, launch-latency-or-dependency, back-to-back."""

    total_ns: float
    by_cause_ns: Mapping[str, float]
    verify_to_draft_span_ns: float | None  # median; last operation of verify to first of draft; negative: overlapped
    verify_to_draft_idle_ns: float | None  # median
    verify_to_draft_by_cause_ns: Mapping[str, float]  # means
    num_overlapped: int


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
    """How far the figures can be trusted. `verdict`: good, doubtful (a warning above the tables) or refused (phase
    figures are left out)."""

    verdict: str
    attributed_share: float  # of the busy time of operations, those with a phase
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
class Profile:
    """One analysed trace."""

    source: Source
    subject: Subject | None
    round_ns: float  # median length of a round, start to next start where rounds follow each other
    gpu_busy_ns: float  # per round, union over all operations
    gpu_busy_share: float  # of the round
    phases: tuple[PhaseFigures, ...]
    graph: GraphCertificate
    syncs: tuple[SyncFigures, ...]
    syncs_per_round: float
    idle: IdleFigures
    kernels: tuple[KernelFigures, ...]  # by total time, the largest first; attention ones always kept
    timeline: tuple[Bar, ...]  # the median round
    timeline_round: int
    quality: Quality
    slow_down: SlowDown | None = None
    schema: str = SCHEMA


def to_json(profile: Profile) -> str:
    return json.dumps(to_document(profile), indent=1)


def write_profile(profile: Profile, directory: Path) -> Path:
    path = directory / FILE
    write_document(path, profile)
    return path


def read_profile(path: Path) -> Profile:
    """From a file, or the folder that holds it. ValueError for a file that is not a profile of this version, or has
    fields that are not known."""
    file = path / FILE if path.is_dir() else path
    raw = checked_schema(read_object(file), SCHEMA, file)
    profile = from_document(Profile, raw, str(file))
    check_nothing_lost(raw, profile, str(file))
    return profile
