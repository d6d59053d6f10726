"""The comparison of two profiles as a document: A is the first side, B the second; changes are B - A."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from specbench.harness.profiling.record import LATE, Profile
from specbench.reports.cells import NOTHING, factor, share, with_interval
from specbench.reports.document import Command, Document, Section, Table
from specbench.reports.profile.cells import TimeUnit, count, kernel_name, phase_name, points, unit_of
from specbench.reports.profile.diff import INTERVAL_NOTE, LATE_WAIT, Delta, PhaseDelta, ProfileDiff, diff_profiles
from specbench.reports.profile.report import commands, without_phases
from specbench.reports.profile.sentences import SHARES_NOT_SPEED, findings
from specbench.reports.profile.tables import KINDS
from specbench.reports.profile.timeline import timeline, timeline_span_ns

MAX_KERNELS = 15
_WRITTEN: dict[str, Callable[[float | None], str]] = {"count": count, "share": share, "ratio": factor}


def diff_document(a: Profile, b: Profile, names: tuple[str, str]) -> Document:
    """`names`: what the reader calls A and B."""
    diff = diff_profiles(a, b)
    sides = {"A": a, "B": b}
    shown = {s: without_phases(p) if p.quality.verdict == "refused" else p for s, p in sides.items()}
    sections = [
        Section(
            title="What is compared",
            sentences=(f"A: {names[0]}", f"B: {names[1]}", SHARES_NOT_SPEED),
            commands=tuple(
                Command(name=f"{s}, {c.name.lower()}", text=c.text) for s, p in sides.items() for c in commands(p)
            ),
        ),
        Section(title="At a glance", tables=(_headline(diff),)),
        *([Section(title="Phases", tables=_phases(diff))] if diff.phases else []),
        *([Section(title="Synchronisations", tables=(_syncs(diff),))] if diff.syncs else []),
        _kernels(diff),
        *_timelines(shown),
        *(Section(title=f"{side} in words", sentences=findings(p)) for side, p in shown.items()),
    ]
    return Document(title=f"{names[0]} against {names[1]}", warnings=diff.warnings, sections=tuple(sections))


def _headline(diff: ProfileDiff) -> Table:
    rows = [((f"{d.name}, {_unit([d]).name}" if d.unit == "ns" else d.name,), (d,)) for d in diff.headline]
    notes = [INTERVAL_NOTE] if any(d.interval for d in diff.headline) else []
    if any(d.name == LATE_WAIT for d in diff.headline):
        notes.append(KINDS[LATE])
    return _table("Figures of a round", ("figure",), ("",), rows, tuple(notes))


def _phases(diff: ProfileDiff) -> tuple[Table, Table]:
    def rows(*figures: tuple[str, str]) -> Iterable[tuple[tuple[str], Sequence[Delta]]]:
        for phase in diff.phases:
            yield (phase_name(phase.phase, phase.draft_step),), [_figure(phase, *figure) for figure in figures]

    note = "Per round, means, under the profiler; a dash: the side does not have the figure."
    times, launches = ("GPU busy {}", "host {}"), ("from a graph", "kernels")
    return (
        _table("Time by phase", ("phase",), times, rows(("gpu_busy_ns", "ns"), ("host_ns", "ns")), (note,)),
        _table(
            "Graphs and kernels by phase",
            ("phase",),
            launches,
            rows(("graph_share_kernels", "share"), ("kernels", "count")),
        ),
    )


def _figure(phase: PhaseDelta, field: str, unit: str) -> Delta:
    a, b = (None if side is None else getattr(side, field) for side in (phase.a, phase.b))
    return Delta(name=field, unit=unit, a=a, b=b)


def _syncs(diff: ProfileDiff) -> Table:
    ordered = sorted(diff.syncs, key=lambda sync: -abs(sync.wait.change or 0.0))
    has_sites = any(s.site for s in ordered)
    names = ("phase", "call", "kind", *["call site"] * has_sites)
    rows = [((s.phase or NOTHING, s.api, s.kind, *[s.site] * has_sites), (s.per_round, s.wait)) for s in ordered]
    return _table("Synchronisations by place", names, ("a round", "wait {}"), rows)


def _kernels(diff: ProfileDiff) -> Section:
    """Kernels on one side only, and those whose time changed most."""
    changed = [k for k in diff.kernels if k.status != "both" or k.total.change or k.calls.change]
    if not changed:
        return Section(title="Kernels", sentences=("No kernel was added, removed or changed.",))
    note = (
        "Per round, over all phases, largest change first. 'Only in' refers to the kernels that the profile keeps. "
        "The JSON has full names and all kernels."
    )
    rows = [((kernel_name(k.name), k.status), (k.calls, k.total)) for k in changed[:MAX_KERNELS]]
    title = "Kernels added, removed or changed most"
    return Section(title="Kernels", tables=(_table(title, ("kernel", "where"), ("calls", "total {}"), rows, (note,)),))


def _timelines(sides: dict[str, Profile]) -> Iterable[Section]:
    if any(profile.timeline for profile in sides.values()):
        span_ns = max(map(timeline_span_ns, sides.values()))
        drawn = [timeline(p, f"{side}: round {p.timeline_round}, the median one", span_ns) for side, p in sides.items()]
        yield Section(title="Timeline, both on one scale", timelines=tuple(drawn))


def _table(
    title: str,
    names: tuple[str, ...],
    figures: tuple[str, ...],
    rows: Iterable[tuple[tuple[str, ...], Sequence[Delta]]],
    notes: tuple[str, ...] = (),
) -> Table:
    """Three columns per figure: A, B and the change. `figures`: headers with `{}` in place of the unit of durations,
    which a column shares; without `{}`, each row has its own unit."""
    held = [(name, tuple(deltas)) for name, deltas in rows]
    units = [_unit([deltas[i] for _, deltas in held]) if "{}" in figure else None for i, figure in enumerate(figures)]
    named = [figure.format(unit.name) if unit else figure for figure, unit in zip(figures, units, strict=True)]
    headers = [f"{figure} {side}".strip() for figure in named for side in ("A", "B", "change")]
    cells = [
        (*name, *(c for delta, unit in zip(deltas, units, strict=True) for c in _cells(delta, unit or _unit([delta]))))
        for name, deltas in held
    ]
    return Table(title=title, headers=(*names, *headers), rows=tuple(cells), notes=notes)


def _unit(deltas: Iterable[Delta]) -> TimeUnit:
    return unit_of(ns for delta in deltas if delta.unit == "ns" for ns in (delta.a, delta.b))


def _cells(delta: Delta, unit: TimeUnit) -> tuple[str, str, str]:
    write = unit.text if delta.unit == "ns" else _WRITTEN[delta.unit]
    return write(delta.a), write(delta.b), _change(delta, unit)


def _change(delta: Delta, unit: TimeUnit) -> str:
    """B - A with its sign; `0` for no change; followed by its interval, if any: `-2.30 [-3.10, -1.50]`."""
    low, high = delta.interval or (None, None)
    return with_interval(lambda change: _signed(change, delta.unit, unit), delta.change, low, high)


def _signed(change: float, kind: str, unit: TimeUnit) -> str:
    if not change:
        return "0"
    if kind == "ns":
        return unit.text(change, signed=True)
    return points(change) if kind == "share" else count(change, signed=True)
