"""One profile, or several arms' profiles of one run, as a document: always the same sections in the same order."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence

from specbench.harness.profiling.record import IDLE_UNKNOWN, Profile
from specbench.reports.cells import NOTHING, compact, factor, share
from specbench.reports.document import Command, Document, Fact, Section, Table, with_rows
from specbench.reports.profile.cells import count, duration, num_bytes_text, unit_of
from specbench.reports.profile.labels import arm_titles
from specbench.reports.profile.sentences import SHARES_NOT_SPEED, certificate, evidence, findings, warnings
from specbench.reports.profile.tables import (
    attention_table,
    claims_table,
    host_table,
    idle_table,
    kernel_table,
    overview_table,
    parts_table,
    phase_table,
    replays_table,
    sync_table,
)
from specbench.reports.profile.timeline import timeline

_SAME_COUNT = 0.005  # counts per round that differ by less are equal


def profile_document(profile: Profile, title: str) -> Document:
    """The whole report of one profile. Where the evidence is refused, figures by phase are left out."""
    shown = without_phases(profile) if profile.quality.verdict == "refused" else profile
    shown = without_host_times(shown) if profile.is_slowed else shown
    return Document(
        title=title,
        warnings=warnings(profile),
        sections=(
            Section(title="A round at a glance", sentences=findings(shown), facts=facts(shown)),
            *_timeline(shown),
            Section(
                title="Phases",
                sentences=() if shown.phases or shown.host_phases else ("There are no figures by phase.",),
                tables=with_rows(phase_table(shown), host_table(shown)),
            ),
            Section(
                title="Graph certificate",
                sentences=(certificate(shown), *shown.graph.reasons),
                tables=with_rows(claims_table(shown), parts_table(shown), replays_table(shown)),
            ),
            *_tables("Synchronisations", sync_table(shown)),
            *_tables("GPU idle time", idle_table(shown)),
            *_tables("Kernels", attention_table(shown), kernel_table(shown)),
            Section(title="Evidence", sentences=(evidence(shown), *shown.quality.notes)),
            _commands(shown),
            Section(title="How to read the times", sentences=(SHARES_NOT_SPEED,)),
        ),
    )


def profiles_document(profiles: Mapping[str, Profile], title: str) -> Document:
    """Several profiles: an overview table, then each. For a single one, `profile_document`."""
    if len(profiles) == 1:
        ((name, profile),) = profiles.items()
        return profile_document(profile, f"Profile: {name}")
    titles, shared = arm_titles(list(profiles))
    titled = list(zip(titles, profiles.values(), strict=True))
    return Document(
        title=title,
        sections=(Section(title="Overview", sentences=(SHARES_NOT_SPEED,), tables=(overview_table(titled, shared),)),),
        parts=tuple(profile_document(profile, name) for name, profile in titled),
    )


def profile_name(profile: Profile) -> str:
    return profile.subject.arm if profile.subject else profile.source.file


def without_phases(profile: Profile) -> Profile:
    """The profile without figures by phase, for evidence that does not support them."""
    idle = dataclasses.replace(
        profile.idle,
        verify_to_draft_span_ns=None,
        verify_to_draft_idle_ns=None,
        verify_to_draft_by_cause_ns={},
        num_overlapped=0,
    )
    return dataclasses.replace(
        profile,
        phases=(),
        idle=idle,
        syncs=tuple(dataclasses.replace(sync, phase=NOTHING) for sync in profile.syncs),
        kernels=tuple(dataclasses.replace(k, phase=NOTHING, draft_step=None) for k in profile.kernels),
        timeline=tuple(dataclasses.replace(bar, phase="other", draft_step=None) for bar in profile.timeline),
    )


def without_host_times(profile: Profile) -> Profile:
    """The profile without idle and host times, which a slow profiler distorts."""
    phases = tuple(dataclasses.replace(phase, host_ns=None) for phase in profile.phases)
    return dataclasses.replace(profile, phases=phases, idle=IDLE_UNKNOWN, gpu_busy_share=None)


def commands(profile: Profile) -> tuple[Command, ...]:
    profiler = profile.subject.profiler_argv if profile.subject else None
    program = "Program, as given" if profile.source.is_command_given else "Program, from the trace"
    texts = [
        ("Profiler", profiler and shlex.join(profiler)),
        (program, profile.source.command and shlex.join(profile.source.command)),
        ("Working directory", profile.source.working_dir),
    ]
    return tuple(Command(name=name, text=text) for name, text in texts if text)


def facts(profile: Profile) -> tuple[Fact, ...]:
    """Key figures, shown as chips."""
    graph, idle = profile.graph, profile.idle
    round_unit, idle_unit = unit_of([profile.round_ns]), unit_of([idle.verify_to_draft_idle_ns])
    slow_down = Fact(
        name="profiler's slow-down",
        value=factor(profile.slow_down.ratio if profile.slow_down else None),
        note="" if profile.slow_down else "no unprofiled twin",
    )
    if profile.is_host_only:
        return (Fact(name=f"median round, {round_unit.name}", value=round_unit.text(profile.round_ns)), slow_down)
    return (
        Fact(name="launches a round", value=count(graph.launches_per_round)),
        Fact(name="graph launches a round", value=count(graph.graph_launches_per_round)),
        Fact(
            name="kernels from a graph",
            value=share(graph.graph_share_kernels),
            note=f"{share(graph.graph_share_time)} of kernel time",
        ),
        Fact(name="synchronisations a round", value=count(profile.syncs_per_round), note=_engine_count(profile)),
        Fact(
            name=f"idle from verify to draft, {idle_unit.name}",
            value=idle_unit.text(idle.verify_to_draft_idle_ns),
            note=_apart(profile),
        ),
        Fact(
            name="GPU busy",
            value=share(profile.gpu_busy_share),
            note=f"all rounds; median round {duration(profile.round_ns)}",
        ),
        slow_down,
    )


def _engine_count(profile: Profile) -> str:
    """The engine's own count of synchronisations, and whether it matches the trace."""
    counted = profile.subject.engine_syncs_per_round if profile.subject else None
    if counted is None or profile.syncs_per_round is None:
        return ""
    is_same = abs(counted - profile.syncs_per_round) < _SAME_COUNT
    return f"engine's own count{'' if is_same else ' DIFFERS'}: {count(counted)}"


def _apart(profile: Profile) -> str:
    span_ns = profile.idle.verify_to_draft_span_ns
    if span_ns is not None:
        return f"median; span: {duration(span_ns)}"
    return "no drafter" if profile.phases else ""


def _commands(profile: Profile) -> Section:
    source = profile.source
    about = [
        ("GPU", ", ".join(source.devices) or "none in the trace"),
        ("tool", source.tool or source.kind),
        ("nsys export schema", source.schema_version),
        ("trace", f"{source.file}, {num_bytes_text(source.num_bytes)}, sha256 {source.sha256[:16]}…"),
    ]
    about += [("arm", profile.subject.arm)] if profile.subject else []
    about += [("batch size", str(profile.batch_size))] if profile.batch_size else []
    about += [("choices", compact(profile.subject.config))] if profile.subject else []
    missing = [] if source.command else ["The trace does not contain the program's command."]
    rows = tuple((name, value) for name, value in about if value)
    table = Table(title="Where it comes from", headers=("what", "value"), rows=rows)
    return Section(title="Command", sentences=tuple(missing), commands=commands(profile), tables=(table,))


def _tables(title: str, *tables: Table) -> Sequence[Section]:
    present = with_rows(*tables)
    return [Section(title=title, tables=present)] if present else []


def _timeline(profile: Profile) -> Sequence[Section]:
    if not profile.timeline:
        return []
    drawn = timeline(profile, f"Round {profile.timeline_round}, the median one")
    return [Section(title="Timeline", timelines=(drawn,))]
