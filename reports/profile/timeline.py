"""Layout of the timeline of a profile's median round: rectangles and labels; drawn by `templates/timeline.svg.j2`.

Lanes from top to bottom: the host's ranges, its waits, a lane per GPU stream. A bar of full height was launched by a
CUDA graph, one of half height by a separate launch. Two timelines with the same `span_ns` share their scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, groupby

from specbench.harness.profiling.record import PHASES, Bar, Profile
from specbench.reports.cells import NOTHING
from specbench.reports.document import Label, Rect, Timeline
from specbench.reports.profile.cells import TimeUnit, duration, phase_name, unit_of

WIDTH_PX, GUTTER_PX, MARGIN_PX = 1000.0, 96.0, 16.0
_LABEL_PX, _BAR_PX, _LANE_GAP_PX, _AXIS_PX = 14.0, 22.0, 6.0, 24.0
_CHARACTER_PX = 6.4  # of a label's font
MAX_RECTS = 300
MAX_RUNS = 200  # rows of the table below a drawing
_TICK_STEPS = (1, 2, 5)


def timeline(profile: Profile, title: str, span_ns: float | None = None) -> Timeline:
    """Lay out `profile.timeline` over `span_ns` (default: up to its last bar)."""
    bars = profile.timeline
    span = max(span_ns or 0.0, timeline_span_ns(profile), 1.0)
    scale, unit = (WIDTH_PX - GUTTER_PX - MARGIN_PX) / span, unit_of([span])
    lanes = bars_by_row(bars)
    tops = {row: i * (_LABEL_PX + _BAR_PX + _LANE_GAP_PX) for i, row in enumerate(lanes)}
    pieces, notes = fitted(bars, 1 / scale)
    runs = [run for lane in lanes.values() for run in _runs(lane)]
    phases = {bar.phase if bar.phase in PHASES else "other" for bar in bars}
    height = len(lanes) * (_LABEL_PX + _BAR_PX + _LANE_GAP_PX)
    return Timeline(
        title=title,
        width=WIDTH_PX,
        height=height + _AXIS_PX,
        rects=tuple(_rect(piece, tops[piece[0].row], scale) for piece in pieces),
        labels=tuple(label for row, lane in lanes.items() for label in _labels(_runs(lane), tops[row], scale)),
        lanes=tuple(Label(x=0, y=tops[row] + _LABEL_PX + _BAR_PX * 0.7, text=row_name(row)) for row in lanes),
        ticks=tuple(Label(x=GUTTER_PX + t * scale, y=height, text=_tick(t / unit.ns)) for t in _ticks(span)),
        phases=tuple(phase for phase in PHASES if phase in phases),
        notes=tuple(notes),
        unit=unit.name,
        runs=tuple(_run_row(run, unit) for run in runs[:MAX_RUNS])
        + ((f"and {len(runs) - MAX_RUNS} more", *[NOTHING] * 5),) * (len(runs) > MAX_RUNS),
    )


def timeline_span_ns(profile: Profile) -> float:
    return max((bar.t1_ns for bar in profile.timeline), default=0)


def fitted(bars: Sequence[Bar], pixel_ns: float) -> tuple[list[list[Bar]], list[str]]:
    """At most MAX_RECTS rectangles, each given by the bars that it covers, and notes on bars that were joined or left
    out. Equal neighbours are joined if one of them and their gap are narrower than a pixel, then two, four, ...; if
    phases alternate too often for that, the shortest rectangles are left out."""
    lanes = bars_by_row(bars).values()
    longest_ns = max((bar.t1_ns for bar in bars), default=0)
    joined = _joined(lanes, pixel_ns)
    while len(joined) > MAX_RECTS and pixel_ns < longest_ns:
        pixel_ns *= 2
        joined = _joined(lanes, pixel_ns)
    notes = []
    if len(joined) < len(bars):
        notes.append(f"{len(bars)} bars are merged into {len(joined)}: gaps below {duration(pixel_ns)} are not drawn.")
    if len(joined) > MAX_RECTS:
        notes.append(f"The {len(joined) - MAX_RECTS} shortest rectangles are left out.")
        joined = sorted(joined, key=lambda piece: piece[0].t0_ns - _end_ns(piece))[:MAX_RECTS]
    return joined, notes


def bars_by_row(bars: Sequence[Bar]) -> dict[str, list[Bar]]:
    """The bars of each row in their order: host, waits, then devices and their streams by number."""
    ordered = sorted(bars, key=lambda bar: (_row_order(bar.row), bar.t0_ns, -bar.t1_ns))
    return {row: list(lane) for row, lane in groupby(ordered, key=lambda bar: bar.row)}


def row_name(row: str) -> str:
    """`gpu:7` is `GPU stream 7`, `gpu1:7` `GPU 1 stream 7`."""
    kind, _, stream = row.partition(":")
    device = kind.removeprefix("gpu")
    if not kind.startswith("gpu"):
        return row
    return f"GPU{f' {device}' * bool(device)}{f' stream {stream}' * bool(stream)}"


def _row_order(row: str) -> tuple[int, int, int, str]:
    kind, _, stream = row.partition(":")
    device, number = (int(text) if text.isdigit() else 0 for text in (kind.removeprefix("gpu"), stream))
    return ({"host": 0, "sync": 1}.get(kind, 2), device, number, row)


def _joined(lanes: Iterable[Sequence[Bar]], pixel_ns: float) -> list[list[Bar]]:
    pieces: list[list[Bar]] = []
    for lane in lanes:
        pieces.append([lane[0]])
        end_ns = lane[0].t1_ns
        for bar in lane[1:]:
            first = pieces[-1][0]
            is_narrow = min(end_ns - first.t0_ns, bar.t1_ns - bar.t0_ns) < pixel_ns
            if _kind(first) == _kind(bar) and is_narrow and bar.t0_ns - end_ns < pixel_ns:
                pieces[-1].append(bar)
                end_ns = max(end_ns, bar.t1_ns)
            else:
                pieces.append([bar])
                end_ns = bar.t1_ns
    return pieces


def _kind(bar: Bar) -> tuple[str, int | None, bool]:
    return bar.phase, bar.draft_step, bar.via_graph


def _end_ns(bars: Sequence[Bar]) -> int:
    return max(bar.t1_ns for bar in bars)


def _busy_ns(bars: Sequence[Bar]) -> int:
    return sum(bar.t1_ns - bar.t0_ns for bar in bars)


def _rect(piece: Sequence[Bar], top: float, scale: float) -> Rect:
    first = piece[0]
    is_half = first.row.startswith("gpu") and not first.via_graph
    height = _BAR_PX / 2 if is_half else _BAR_PX
    return Rect(
        x=GUTTER_PX + first.t0_ns * scale,
        y=top + _LABEL_PX + (_BAR_PX - height),
        width=max((_end_ns(piece) - first.t0_ns) * scale, 0.5),
        height=height,
        phase=first.phase if first.phase in PHASES else "other",
        is_odd_step=bool((first.draft_step or 0) % 2),
        title=_title(piece),
    )


def _title(piece: Sequence[Bar]) -> str:
    first = piece[0]
    name = first.name if all(bar.name == first.name for bar in piece) else "several operations"
    times = f" x {len(piece)}" if len(piece) > 1 else ""
    launch = ", from a graph" if first.via_graph else ", launched individually"
    unit = unit_of([_end_ns(piece)])
    return (
        f"{phase_name(first.phase, first.draft_step)}: {name}{times}{launch * first.row.startswith('gpu')}; "
        f"{unit.text(first.t0_ns)} to {unit.text(_end_ns(piece))} {unit.name}, {duration(_busy_ns(piece))} long"
    )


def _runs(lane: Sequence[Bar]) -> list[list[Bar]]:
    """Consecutive bars of one phase and drafter pass; ranges of the host itself are grouped by name."""
    return [list(run) for _, run in groupby(lane, key=_run_key)]


def _run_key(bar: Bar) -> tuple[str, int | None, str]:
    return bar.phase, bar.draft_step, bar.name if (bar.row, bar.phase) == ("host", "host") else ""


def _labels(runs: Sequence[Sequence[Bar]], top: float, scale: float) -> list[Label]:
    """The name of each run above its start, if it fits."""
    labels: list[Label] = []
    free_from = 0.0
    for run in runs:
        x = GUTTER_PX + run[0].t0_ns * scale
        width = _end_ns(run) * scale + GUTTER_PX - x
        step = run[0].draft_step
        for text in (_run_name(run),) if step is None else (f"{run[0].phase} {step}", f"d{step}"):
            if x >= free_from and len(text) * _CHARACTER_PX <= width:
                labels.append(Label(x=x, y=top + _LABEL_PX - 3, text=text))
                free_from = x + (len(text) + 1) * _CHARACTER_PX
                break
    return labels


def _run_name(run: Sequence[Bar]) -> str:
    """The phase; for ranges of the host itself, their name (`prepare`, `round`)."""
    name = run[0].name.removeprefix("specbench:")
    return name if run[0].phase == "host" and name != run[0].name else run[0].phase


def _run_row(run: Sequence[Bar], unit: TimeUnit) -> tuple[str, ...]:
    first = run[0]
    times = (unit.text(ns) for ns in (first.t0_ns, _end_ns(run), _busy_ns(run)))
    return (row_name(first.row), phase_name(first.phase, first.draft_step), *times, str(len(run)))


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _ticks(span_ns: float) -> list[float]:
    """Round times, at most nine of them, from 0."""
    step = next(m * 10**e for e in count() for m in _TICK_STEPS if span_ns / (m * 10**e) <= 8)
    return [i * step for i in range(int(span_ns / step) + 1)]
