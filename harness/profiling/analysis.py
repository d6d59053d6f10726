"""From a trace file to a Profile: nsys sqlite exports and reports, and torch profiler (Kineto) JSON.

Both are read into the same tables (trace_tables.sql), so all later steps are shared. GPU work belongs to the round and
phase whose host range encloses the call that launched it, regardless of when it ran.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType

from specbench.harness.engines.traced import NodeMap
from specbench.workloads.assets.cache import read_sha256

from .attribution import Attribution, attribute
from .graph_certificate import graph_certificate
from .idle import idle_figures, main_device
from .kineto_trace import open_kineto
from .nsys_trace import export_report, open_nsys
from .phase_figures import kernel_figures, phase_figures
from .record import Profile, Quality, Source, Subject
from .replays import replays
from .round_figures import round_figures
from .rounds import Rounds, choose_rounds, unplaced
from .rules import Matcher, PhaseRules
from .spans import Span, matched
from .timeline import timeline
from .trace_db import GRAPH, KINETO, NSYS, ProcessTrace, Trace, trace_kind
from .waits import find_waits, sync_figures, syncs_per_round

GOOD_SHARE, REFUSED_SHARE = 0.95, 0.5  # share of the busy time attributed to a phase
_REPORTS = (".nsys-rep", ".qdrep")


def analyse_trace(
    path: Path,
    *,
    rules: PhaseRules,
    node_maps: Sequence[NodeMap] = (),
    subject: Subject | None = None,
    claims: Mapping[str, str] = MappingProxyType({}),
    notes: Sequence[str] = (),
) -> Profile:
    """All figures of a trace, which is only read.

    `node_maps`: counts of captured graphs (node_map.py). `claims`: graph modes by part, if no `subject` has its own.
    `notes`: what the engine says about its rounds. ValueError says what is wrong with the file, or missing in it, and
    what to do.
    """
    with open_trace(path) as trace:
        matcher = rules.matcher()
        process, spans, about_processes = _process(trace, matcher)
        a = attribute(process, spans, node_maps, subject)
        calls = process.calls(a.call_tid)
        rounds = choose_rounds(a, calls, process.file)
    quality = _quality(a, rounds, [*trace.notes, *about_processes, *a.notes, *rounds.notes, *_more_notes(a)], notes)
    refusal = None
    if quality.verdict == "refused":
        refusal = f"only {quality.attributed_share:.1%} of the GPU's busy time could be attributed to a phase"
    waits = find_waits(a, calls)
    syncs = sync_figures(waits, rounds)
    idle, busy_share = idle_figures(a, rounds)
    bars, number = timeline(a, rounds, waits)
    return Profile(
        source=trace.source,
        subject=subject,
        round_ns=rounds.length_ns(),
        gpu_busy_ns=int(rounds.ops["own_ns"].sum()) / rounds.num,
        gpu_busy_share=busy_share,
        phases=() if refusal else phase_figures(a, rounds, matcher),
        graph=graph_certificate(a, rounds, subject, claims, refusal),
        syncs=syncs,
        syncs_per_round=syncs_per_round(syncs),
        idle=idle,
        kernels=kernel_figures(rounds, matcher),
        timeline=bars,
        timeline_round=number,
        quality=quality,
        told_batch_size=rounds.batch_size,
        replays=replays(a, rounds, matcher),
        rounds=round_figures(rounds, waits),
    )


@contextmanager
def open_trace(path: Path) -> Iterator[Trace]:
    """The trace in a file. Its kind is detected from its content; only nsys reports are recognised by their name."""
    if not path.is_file():
        raise ValueError(f"trace: {path} is not a file")
    kind = trace_kind(path)
    given = Source(kind=kind or NSYS, file=path.name, sha256=read_sha256(path), num_bytes=path.stat().st_size)
    with tempfile.TemporaryDirectory() as folder:
        if kind == NSYS:
            trace = open_nsys(path, given)
        elif kind == KINETO:
            trace = open_kineto(path, given)
        elif path.suffix in _REPORTS and given.num_bytes:
            trace = open_nsys(export_report(path, Path(folder)), given)
        else:
            raise ValueError(
                f"trace: {path.name} is {'neither sqlite nor JSON' if given.num_bytes else 'empty'}; allowed: an nsys "
                "report (.nsys-rep) or its sqlite export, or a torch profiler trace (.json, .json.gz)"
            )
        with closing(trace.connection):
            yield trace


def _process(trace: Trace, matcher: Matcher) -> tuple[ProcessTrace, list[Span], list[str]]:
    """The analysed process: of those with ranges that match rules, the one with the most GPU work."""
    gpu_ns = trace.processes()
    found = {pid: (process := trace.of_process(pid), matched(process.ranges(), matcher)) for pid in gpu_ns}
    found = {pid: item for pid, item in found.items() if item[1]}
    if not found:
        _refuse(trace, matcher)
    chosen = max(found, key=lambda pid: (gpu_ns[pid], -pid))
    process, spans = found[chosen]
    notes = []
    if len(found) > 1:
        low, high = (bound(gpu_ns[pid] for pid in found) / 1e6 for bound in (min, max))
        notes.append(
            f"{len(found)} processes with rounds; figures are those of the busiest (GPU time {low:.3f} to {high:.3f} "
            "ms)"
        )
    return process, spans, notes


def _refuse(trace: Trace, matcher: Matcher) -> None:
    names = trace.range_names()
    file = trace.source.file
    if any(matcher.rule(name) for name in names):
        raise ValueError(
            f"trace: {file} has phases in a process that has no GPU work; profile the process that launches it"
        )
    seen = ", ".join(repr(name) for name, _ in names.most_common(8))
    raise ValueError(
        f"trace: no rule matches any of the {len(names)} range names in {file} (most frequent: {seen}); give --rules "
        "FILE with a [[rule]] for each phase (harness/profiling/rules.toml shows how)"
    )


def _quality(a: Attribution, rounds: Rounds, notes: Sequence[str], engines_notes: Sequence[str]) -> Quality:
    """The share counts operations of the analysed rounds, and those between the first and the last that are in none."""
    loose = unplaced(a, rounds)
    placed_ns = int(rounds.ops["own_ns"].drop(loose.index, errors="ignore").sum())
    total_ns = placed_ns + int(loose["own_ns"].sum())
    share = placed_ns / total_ns if total_ns else 0.0
    verdict = "good" if share >= GOOD_SHARE else "doubtful" if share >= REFUSED_SHARE else "refused"
    return Quality(
        verdict=verdict,
        attributed_share=share,
        num_ops=len(a.ops),
        num_ops_without_launch=int((a.ops["launch"] < 0).sum()),
        num_ops_without_round=int((a.ops["round"] < 0).sum()),
        num_rounds=rounds.num,
        num_rounds_left_out=rounds.num_left_out,
        notes=(*dict.fromkeys(notes), *engines_notes),
    )


def _more_notes(a: Attribution) -> Iterator[str]:
    if (a.ops["kind"] == GRAPH).any():
        yield "graphs were not traced by node: kernels inside them are not seen; record with --cuda-graph-trace=node"
    num_devices = a.ops["dev"].nunique()
    if num_devices > 1:
        yield f"{num_devices} GPUs in the process; idle times are those of GPU {main_device(a)}"
    serving = {(s.rule.phase, s.rule.also) for s in a.spans if s.rule.also}
    for phase, also in sorted(serving, key=str):
        yield f"kernels of {phase} also serve {also}; their time counts for {phase}"
