"""Server-sent events from the pieces of a stream, each with the arrival time of its last byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

DONE = b"[DONE]"
_PREFIX = b"data:"
_BOM = b"\xef\xbb\xbf"


def read_events(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """(host clock ns, data) of each event. Pieces may end anywhere and contain any number of events; lines end in CR
    LF.

    What follows the last blank line is an event, too: some servers leave the last one unterminated, and a truncated one
    is detected when it is parsed. Comments, other fields and empty data, which some proxies send to keep a connection
    open, are skipped, and so is a byte order mark before all.
    """
    rest, t_ns, is_first = b"", 0, True
    for t_ns, piece in pieces:
        rest += piece
        if is_first:
            is_first = len(rest) < len(_BOM) and _BOM.startswith(rest)  # the rest of the mark may follow
            rest = rest.removeprefix(_BOM)
        if b"\r" in rest:
            held = rest.endswith(b"\r")  # its line feed may be the next byte
            rest = rest[: len(rest) - held].replace(b"\r\n", b"\n") + b"\r" * held
        *whole, rest = rest.split(b"\n\n")
        for text in whole:
            yield from _data(t_ns, text)
    yield from _data(t_ns, rest)


def _data(t_ns: int, event: bytes) -> Iterator[tuple[int, bytes]]:
    if event.startswith(b"data: ") and b"\n" not in event:
        data = event[6:]
    else:
        lines = [line for line in event.splitlines() if line.startswith(_PREFIX)]
        data = b"\n".join(line[len(_PREFIX) :].removeprefix(b" ") for line in lines)
    if data:
        yield t_ns, data
