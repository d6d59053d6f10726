"""The bars of a profile's median round, joined into few enough pieces to draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from specbench.harness.profiling.record import Bar
from specbench.reports.profile.cells import microseconds

MAX_RECTS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Neighbouring bars of one row, phase and way of launching, drawn as one rectangle."""

    row: str
    name: str
    phase: str
    draft_step: int | None
    via_graph: bool
    t0_ns: int
    t1_ns: int
    busy_ns: int  # of its bars; gaps between them are drawn over
    num_bars: int


def fitted(bars: Sequence[Bar], pixel_ns: float) -> tuple[list[Piece], list[str]]:
    """At most MAX_RECTS pieces: neighbours of one kind are joined where one of them and the gap are narrower than a
    pixel, then two, four, ...; where phases alternate too often for that, the shortest are left out. With what was
    done, in words."""
    pieces = [_piece(bar) for row in sorted({b.row for b in bars}, key=row_order) for bar in of_row(bars, row)]
    threshold_ns = pixel_ns
    longest_ns = max((bar.t1_ns for bar in bars), default=0)
    joined = _joined(pieces, threshold_ns)
    while len(joined) > MAX_RECTS and threshold_ns < longest_ns:
        threshold_ns *= 2
        joined = _joined(pieces, threshold_ns)
    notes = []
    if len(joined) < len(pieces):
        notes.append(
            f"{len(pieces)} bars are drawn as {len(joined)}: neighbours of one phase closer and narrower than "
            f"{microseconds(threshold_ns)} µs are one rectangle."
        )
    if len(joined) > MAX_RECTS:
        notes.append(f"The {len(joined) - MAX_RECTS} shortest rectangles are left out.")
        longest = sorted(range(len(joined)), key=lambda i: joined[i].t0_ns - joined[i].t1_ns)[:MAX_RECTS]
        joined = [joined[i] for i in sorted(longest)]
    return joined, notes


def row_name(row: str) -> str:
    """`gpu:7` is `GPU stream 7`, `gpu1:7` `GPU 1 stream 7`."""
    kind, _, stream = row.partition(":")
    device = kind.removeprefix("gpu")
    if not kind.startswith("gpu"):
        return row
    return f"GPU{f' {device}' * bool(device)}{f' stream {stream}' * bool(stream)}"


def of_row(bars: Sequence[Bar], row: str) -> list[Bar]:
    return sorted((bar for bar in bars if bar.row == row), key=lambda bar: (bar.t0_ns, -bar.t1_ns))


def row_order(row: str) -> tuple[int, int, int, str]:
    """Host, waits, then devices and their streams by number."""
    kind, _, stream = row.partition(":")
    device = kind.removeprefix("gpu")
    device_number, stream_number = (int(text) if text.isdigit() else 0 for text in (device, stream))
    return ({"host": 0, "sync": 1}.get(kind, 2), device_number, stream_number, row)


def _joined(pieces: Iterable[Piece], threshold_ns: float) -> list[Piece]:
    done: list[Piece] = []
    for piece in pieces:
        last = done[-1] if done else None
        if last is not None and _joinable(last, piece, threshold_ns):
            done[-1] = _join(last, piece)
        else:
            done.append(piece)
    return done


def _joinable(a: Piece, b: Piece, threshold_ns: float) -> bool:
    alike = (a.row, a.phase, a.draft_step, a.via_graph) == (b.row, b.phase, b.draft_step, b.via_graph)
    narrow = min(a.t1_ns - a.t0_ns, b.t1_ns - b.t0_ns) < threshold_ns
    return alike and narrow and b.t0_ns - a.t1_ns < threshold_ns


def _join(a: Piece, b: Piece) -> Piece:
    return replace(
        a,
        name=a.name if a.name == b.name else "",
        t1_ns=max(a.t1_ns, b.t1_ns),
        busy_ns=a.busy_ns + b.busy_ns,
        num_bars=a.num_bars + b.num_bars,
    )


def _piece(bar: Bar) -> Piece:
    return Piece(**asdict(bar), busy_ns=bar.t1_ns - bar.t0_ns, num_bars=1)
