"""The timeline of a profile's median round, laid out: which rectangles, where; drawn by `templates/timeline.svg.j2`.

Lanes from top to bottom: the host's ranges, its waits, a lane a GPU stream. A bar of full height was launched by a
CUDA graph, one of half height by a launch of its own. Two timelines laid out over one `span_ns` share their scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from specbench.harness.profiling.record import PHASES, Bar, Profile
from specbench.reports.cells import NOTHING
from specbench.reports.profile.bars import Piece, fitted, of_row, row_name, row_order
from specbench.reports.profile.cells import microseconds, phase_name

WIDTH_PX, GUTTER_PX, MARGIN_PX = 1000.0, 96.0, 16.0
_LABEL_PX, _BAR_PX, _LANE_GAP_PX, _AXIS_PX = 14.0, 22.0, 6.0, 24.0
_CHARACTER_PX = 6.4  # of a label's font
MAX_RUNS = 200  # rows of the table below a drawing
_TICK_STEPS = (1, 2, 5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rect:
    """In pixels of the drawing; `title` is what a pointer that rests on it is told."""

    x: float
    y: float
    width: float
    height: float
    phase: str
    is_odd_step: bool
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    x: float
    y: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """A drawing of `width` x `height` pixels. `phases`: those that occur, in the order of a round; `runs`: the same
    bars as rows of a table: where, phase, start, end, time covered by bars, number of bars."""

    title: str
    width: float
    height: float
    rects: tuple[Rect, ...]
    labels: tuple[Label, ...]
    lanes: tuple[Label, ...]
    ticks: tuple[Label, ...]
    phases: tuple[str, ...]
    notes: tuple[str, ...]
    runs: tuple[tuple[str, ...], ...]


def timeline(profile: Profile, title: str, span_ns: float | None = None) -> Timeline:
    """Lay out `profile.timeline` over `span_ns` (default: up to its last bar)."""
    bars = profile.timeline
    span = max(span_ns or 0.0, timeline_span_ns(profile), 1.0)
    scale = (WIDTH_PX - GUTTER_PX - MARGIN_PX) / span
    rows = sorted({bar.row for bar in bars}, key=row_order)
    tops = {row: i * (_LABEL_PX + _BAR_PX + _LANE_GAP_PX) for i, row in enumerate(rows)}
    pieces, notes = fitted(bars, 1 / scale)
    phases = [*(p for p in PHASES if any(b.phase == p for b in bars)), *_unknown(bars)]
    height = len(rows) * (_LABEL_PX + _BAR_PX + _LANE_GAP_PX)
    return Timeline(
        title=title,
        width=WIDTH_PX,
        height=height + _AXIS_PX,
        rects=tuple(_rect(piece, tops[piece.row], scale) for piece in pieces),
        labels=tuple(label for row in rows for label in _labels(_runs(bars, row), tops[row], scale)),
        lanes=tuple(Label(x=0, y=tops[row] + _LABEL_PX + _BAR_PX * 0.7, text=row_name(row)) for row in rows),
        ticks=tuple(Label(x=GUTTER_PX + t * scale, y=height, text=f"{t / 1e3:g}") for t in _ticks(span)),
        phases=tuple(phases),
        notes=tuple(notes),
        runs=_table(bars, rows),
    )


def timeline_span_ns(profile: Profile) -> float:
    return max((bar.t1_ns for bar in profile.timeline), default=0)


def _rect(piece: Piece, top: float, scale: float) -> Rect:
    is_half = piece.row.startswith("gpu") and not piece.via_graph
    height = _BAR_PX / 2 if is_half else _BAR_PX
    return Rect(
        x=GUTTER_PX + piece.t0_ns * scale,
        y=top + _LABEL_PX + (_BAR_PX - height),
        width=max((piece.t1_ns - piece.t0_ns) * scale, 0.5),
        height=height,
        phase=piece.phase if piece.phase in PHASES else "other",
        is_odd_step=bool((piece.draft_step or 0) % 2),
        title=_title(piece),
    )


def _title(piece: Piece) -> str:
    what = piece.name or "several operations"
    times = f" x {piece.num_bars}" if piece.num_bars > 1 else ""
    launched = (
        "" if not piece.row.startswith("gpu") else ", from a graph" if piece.via_graph else ", launched by itself"
    )
    return (
        f"{phase_name(piece.phase, piece.draft_step)}: {what}{times}{launched}; {microseconds(piece.t0_ns)} to "
        f"{microseconds(piece.t1_ns)} µs, {microseconds(piece.busy_ns)} µs long"
    )


def _runs(bars: Sequence[Bar], row: str) -> list[list[Bar]]:
    """The row's bars in groups of consecutive ones of one phase and drafter pass; the host's own by their names."""
    return [list(run) for _, run in groupby(of_row(bars, row), key=_run_key)]


def _run_key(bar: Bar) -> tuple[str, int | None, str]:
    return bar.phase, bar.draft_step, bar.name if (bar.row, bar.phase) == ("host", "host") else ""


def _labels(runs: Sequence[Sequence[Bar]], top: float, scale: float) -> list[Label]:
    """A run's name above its start, where the next label leaves room for it."""
    labels: list[Label] = []
    free_from = 0.0
    for run in runs:
        x = GUTTER_PX + run[0].t0_ns * scale
        width = max(bar.t1_ns for bar in run) * scale + GUTTER_PX - x
        step = run[0].draft_step
        name = _run_name(run) if step is None else f"{run[0].phase} {step}"
        for text in (name,) if step is None else (name, f"d{step}"):
            if x >= free_from and len(text) * _CHARACTER_PX <= width:
                labels.append(Label(x=x, y=top + _LABEL_PX - 3, text=text))
                free_from = x + (len(text) + 1) * _CHARACTER_PX
                break
    return labels


def _run_name(run: Sequence[Bar]) -> str:
    """The phase; of the host's own ranges what they are called (`prepare`, `round`)."""
    name = run[0].name.removeprefix("specbench:")
    return name if run[0].phase == "host" and name != run[0].name else run[0].phase


def _table(bars: Sequence[Bar], rows: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    runs = [_run_row(row, run) for row in rows for run in _runs(bars, row)]
    rest = len(runs) - MAX_RUNS
    return tuple(runs) if rest <= 0 else (*runs[:MAX_RUNS], (f"and {rest} more", *[NOTHING] * 5))


def _run_row(row: str, run: Sequence[Bar]) -> tuple[str, ...]:
    end_ns = max(bar.t1_ns for bar in run)
    busy_ns = sum(bar.t1_ns - bar.t0_ns for bar in run)
    name = phase_name(run[0].phase, run[0].draft_step)
    figures = (run[0].t0_ns, end_ns, busy_ns)
    return (row_name(row), name, *(microseconds(figure) for figure in figures), str(len(run)))


def _ticks(span_ns: float, at_most: int = 8) -> list[float]:
    """Round times, at most `at_most` + 1 of them, from 0."""
    step = next(m * 10**e for e in range(15) for m in _TICK_STEPS if span_ns / (m * 10**e) <= at_most)
    return [i * step for i in range(int(span_ns / step) + 1)]


def _unknown(bars: Sequence[Bar]) -> list[str]:
    return ["other"] if any(b.phase not in PHASES for b in bars) and not any(b.phase == "other" for b in bars) else []
