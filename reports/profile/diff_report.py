"""The comparison of two profiles as a document: A is the side named first, B the other; changes are B - A."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from specbench.harness.profiling.record import PhaseFigures, Profile
from specbench.harness.store.files import to_plain
from specbench.reports.cells import NOTHING
from specbench.reports.document import Command, Document, Section, Table
from specbench.reports.profile.cells import count, kernel_name, microseconds, phase_name, points, ratio, share
from specbench.reports.profile.diff import Delta, KernelDelta, PhaseDelta, ProfileDiff, diff_profiles
from specbench.reports.profile.report import commands, without_phases
from specbench.reports.profile.sentences import SHARES_NOT_SPEED, findings
from specbench.reports.profile.timeline import timeline, timeline_span_ns

MOST_KERNELS = 15
_SIDES = ("A", "B", "change")
_WRITTEN: dict[str, Callable[[float | None], str]] = {
    "ns": microseconds,
    "count": count,
    "share": share,
    "ratio": ratio,
}


def diff_document(a: Profile, b: Profile, names: tuple[str, str]) -> Document:
    """`names`: what the reader calls A and B."""
    diff = diff_profiles(a, b)
    shown = [without_phases(p) if p.quality.verdict == "refused" else p for p in (a, b)]
    sections = [
        Section(
            title="What is compared",
            sentences=(f"A: {names[0]}", f"B: {names[1]}", SHARES_NOT_SPEED),
            commands=(*_commands("A", a), *_commands("B", b)),
        ),
        Section(title="At a glance", sentences=tuple(changes(diff)), tables=(_headline(diff),)),
        *_phase_sections(diff),
        *([Section(title="Synchronisations", tables=(_syncs(diff),))] if diff.syncs else []),
        _kernel_section(diff),
        *_timelines(shown[0], shown[1]),
        *(Section(title=f"{side} in words", sentences=findings(p)) for side, p in zip("AB", shown, strict=True)),
    ]
    return Document(title=f"{names[0]} against {names[1]}", warnings=diff.warnings, sections=tuple(sections))


def diff_json(a: Profile, b: Profile) -> str:
    return json.dumps(to_plain(diff_profiles(a, b)), indent=1, allow_nan=False) + "\n"


def changes(diff: ProfileDiff) -> Iterable[str]:
    """What changed, in sentences; what did not is not mentioned."""
    for delta in diff.headline:
        if delta.change and delta.unit in ("count", "share") and not delta.name.startswith("engine"):
            yield f"{_capital(delta.name)}: {_cell(delta.unit, delta.a)} in A, {_cell(delta.unit, delta.b)} in B."
        elif delta.change and delta.name == "verify to draft, idle":
            yield (
                f"The GPU idles {microseconds(delta.a)} µs between verify and draft in A, "
                f"{microseconds(delta.b)} µs in B ({microseconds(delta.change, signed=True)} µs)."
            )
    for phase in diff.phases:
        shares = [side.graph_share_kernels if side else None for side in (phase.a, phase.b)]
        if None not in shares and shares[0] != shares[1]:
            name = phase_name(phase.phase, phase.draft_step)
            yield f"{_capital(name)}: {share(shares[0])} of its kernels from a graph in A, {share(shares[1])} in B."


def _headline(diff: ProfileDiff) -> Table:
    rows = tuple((_with_unit(d), _cell(d.unit, d.a), _cell(d.unit, d.b), _change(d)) for d in diff.headline)
    return Table(title="Figures of a round", headers=("figure", *_SIDES), rows=rows)


def _phase_sections(diff: ProfileDiff) -> Iterable[Section]:
    if not diff.phases:
        return
    busy = [_phase_row(p, "ns", "gpu_busy_ns") for p in diff.phases]
    host = [_phase_row(p, "ns", "host_ns") for p in diff.phases]
    headers = ("phase", *(f"{what} {side}" for what in ("GPU busy µs", "host µs") for side in _SIDES))
    times = Table(
        title="Time by phase",
        headers=headers,
        rows=tuple((*left, *right[1:]) for left, right in zip(busy, host, strict=True)),
        notes=("Per round, means, under the profiler; a dash: the side has no such figure.",),
    )
    graph = [_phase_row(p, "share", "graph_share_kernels") for p in diff.phases]
    kernels = [_phase_row(p, "count", "kernels") for p in diff.phases]
    headers = ("phase", *(f"{what} {side}" for what in ("from a graph", "kernels") for side in _SIDES))
    launches = Table(
        title="Graphs and kernels by phase",
        headers=headers,
        rows=tuple((*left, *right[1:]) for left, right in zip(graph, kernels, strict=True)),
    )
    yield Section(title="Phases", tables=(times, launches))


def _phase_row(phase: PhaseDelta, unit: str, field: str) -> tuple[str, ...]:
    def figure(side: PhaseFigures | None) -> float | None:
        return None if side is None else getattr(side, field)

    delta = Delta(name=field, unit=unit, a=figure(phase.a), b=figure(phase.b))
    return (phase_name(phase.phase, phase.draft_step), _cell(unit, delta.a), _cell(unit, delta.b), _change(delta))


def _syncs(diff: ProfileDiff) -> Table:
    headers = ("phase", "call", "kind", *(f"{what} {s}" for what in ("a round", "wait µs") for s in _SIDES))
    rows = tuple(
        (s.phase or NOTHING, s.api, s.kind, *_three(s.per_round), *_three(s.wait))
        for s in sorted(diff.syncs, key=lambda sync: -abs(sync.wait.change or 0.0))
    )
    return Table(title="Synchronisations by place", headers=headers, rows=rows)


def _kernel_section(diff: ProfileDiff) -> Section:
    """Those that are on one side only, and those whose time changed most."""
    changed = [
        kernel for kernel in diff.kernels if kernel.status != "both" or kernel.total.change or kernel.calls.change
    ]
    if not changed:
        return Section(title="Kernels", sentences=("No kernel came, went or changed.",))
    headers = ("kernel", "where", *(f"{what} {side}" for what in ("calls", "total µs") for side in _SIDES))
    rows = tuple(_kernel_row(kernel) for kernel in changed[:MOST_KERNELS])
    notes = (
        "Per round, over all phases, the largest change first. Only in: among the kernels that the profile keeps. "
        "Whole names and all kernels are in the JSON.",
    )
    title = "Kernels that came, went or changed most"
    return Section(title="Kernels", tables=(Table(title=title, headers=headers, rows=rows, notes=notes),))


def _kernel_row(kernel: KernelDelta) -> tuple[str, ...]:
    return (kernel_name(kernel.name), kernel.status, *_three(kernel.calls), *_three(kernel.total))


def _timelines(a: Profile, b: Profile) -> Iterable[Section]:
    if not (a.timeline or b.timeline):
        return
    span_ns = max(timeline_span_ns(a), timeline_span_ns(b))
    drawn = tuple(
        timeline(profile, f"{side}: round {profile.timeline_round}, the median one", span_ns)
        for side, profile in zip("AB", (a, b), strict=True)
    )
    yield Section(title="Timeline, both on one scale", timelines=drawn)


def _commands(side: str, profile: Profile) -> Iterable[Command]:
    return (Command(name=f"{side}, {found.name.lower()}", text=found.text) for found in commands(profile))


def _three(delta: Delta) -> tuple[str, str, str]:
    return _cell(delta.unit, delta.a), _cell(delta.unit, delta.b), _change(delta)


def _cell(unit: str, value: float | None) -> str:
    return _WRITTEN[unit](value)


def _change(delta: Delta) -> str:
    """B - A with its sign; `0` for no change."""
    change = delta.change
    if change is None:
        return NOTHING
    if not change:
        return "0"
    if delta.unit == "ns":
        return microseconds(change, signed=True)
    if delta.unit == "share":
        return points(change)
    return count(change, signed=True)


def _with_unit(delta: Delta) -> str:
    return f"{delta.name}, µs" if delta.unit == "ns" else delta.name


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
