"""From a torch trace of a program without a GPU to a Profile: the host's work in each range, without launches.

Calls of attention operators are counted per range: a drafter pass has as many as the drafter has layers, regardless of
how its ranges were made.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from specbench.workloads.assets.cache import read_sha256

from .attribution import Attribution, attribute
from .graph_certificate import CANNOT_TELL, NO_CLAIM
from .kineto_trace import open_host
from .phase_figures import Key, draft_step, host_times
from .record import IDLE_UNKNOWN, PHASES, GraphCertificate, HostPhase, Profile, Quality, Source, Subject
from .rounds import Rounds
from .rules import Matcher, PhaseRules
from .spans import innermost, matched
from .timeline import timeline
from .trace_db import KINETO

NO_GPU = "no GPU: the trace holds host activity only, without graphs, launches or kernels"
HOST_ONLY = "host only"  # verdict on the evidence


def analyse_host_trace(
    path: Path, *, rules: PhaseRules, subject: Subject | None = None, notes: Sequence[str] = ()
) -> Profile:
    """ValueError for a file that is not such a trace, and for one whose ranges do not show rounds."""
    given = Source(kind=KINETO, file=path.name, sha256=read_sha256(path), num_bytes=path.stat().st_size)
    matcher, trace = rules.matcher(), open_host(path, given)
    with closing(trace.connection):
        process = trace.of_process(0)
        spans = matched(process.ranges(), matcher)
        if not spans:
            seen = ", ".join(repr(name) for name, _ in trace.range_names().most_common(8))
            raise ValueError(
                f"trace: no rule matches a range name in {given.file} (most frequent: {seen}); give --rules"
            )
        a = attribute(process, spans, (), None)
        rounds = _rounds(a)
        bars, number = timeline(a, rounds, ())
        phases = _phases(a, rounds, _attention(trace.connection, matcher))
    inside_ns = sum(phase.host_ns for phase in phases) * rounds.num
    return Profile(
        source=trace.source,
        subject=subject,
        round_ns=rounds.length_ns(),
        gpu_busy_ns=None,
        gpu_busy_share=None,
        phases=(),
        graph=GraphCertificate(
            verdict=CANNOT_TELL if subject and set(subject.claimed_parts.values()) - {"none"} else NO_CLAIM,
            reasons=(),
            launches_per_round=None,
            graph_launches_per_round=None,
            graph_share_kernels=None,
            graph_share_time=None,
        ),
        syncs=(),
        syncs_per_round=None,
        idle=IDLE_UNKNOWN,
        kernels=(),
        timeline=bars,
        timeline_round=number,
        quality=Quality(
            verdict=HOST_ONLY,
            attributed_share=inside_ns / sum(step.t1 - step.t0 for step in rounds.steps),
            num_ops=0,
            num_ops_without_launch=0,
            num_ops_without_round=0,
            num_rounds=rounds.num,
            num_rounds_left_out=rounds.num_left_out,
            notes=(NO_GPU, *trace.notes, *a.notes, *rounds.notes, *notes),
        ),
        told_batch_size=rounds.batch_size,
        host_phases=phases,
    )


def _rounds(a: Attribution) -> Rounds:
    """Decode rounds, or all steps if there are none."""
    decode = [step for step in a.steps if step.kind == "decode"]
    chosen = [step for step in decode or a.steps if step.is_whole] or decode or list(a.steps)
    notes = () if decode else ("no decode round in the trace: figures are those of steps with prompt rows",)
    num_left_out = len(a.steps) - len(chosen)
    return Rounds(steps=tuple(chosen), ops=a.ops, num_left_out=num_left_out, num_lost=0, notes=notes)


def _attention(connection: sqlite3.Connection, matcher: Matcher) -> list[tuple[int, int]]:
    """Times of attention operators, except those called by another one."""
    found: list[tuple[int, int]] = []
    for name, t0, t1 in connection.execute("SELECT name, t0, t1 FROM cpu_op ORDER BY t0, t1 DESC"):
        if matcher.is_attention(name) and (not found or t0 >= found[-1][1]):
            found.append((t0, t1))
    return found


def _phases(a: Attribution, rounds: Rounds, attention: Sequence[tuple[int, int]]) -> tuple[HostPhase, ...]:
    """In the order of a round."""
    held = {step.index for step in rounds.steps}
    calls: Counter[Key] = Counter()
    for at in innermost(a.spans, [t0 for t0, _ in attention], [t1 for _, t1 in attention]):
        phase = a.spans[at].rule.phase if at >= 0 else None
        if phase is not None and int(a.span_round[at]) in held:
            calls[phase, int(a.span_draft[at])] += 1
    times = host_times(a, rounds)
    return tuple(
        HostPhase(
            phase=phase,
            draft_step=draft_step(draft),
            host_ns=times[phase, draft].ns / rounds.num,
            ranges=times[phase, draft].ranges / rounds.num,
            attention=calls[phase, draft] / rounds.num,
        )
        for phase, draft in sorted(times, key=lambda key: (PHASES.index(key[0]), key[1]))
    )
