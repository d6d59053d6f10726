"""Events out of bytes that were split anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.harness.engines.openai.events import read_events

BOM = b"\xef\xbb\xbf"
DATA = [b'{"a": 1}', '{"text": "ä\\n"}'.encode(), b"[DONE]"]


def stream_of(line: bytes) -> bytes:
    return b": comment" + line * 2 + b"".join(b"data: " + data + line * 2 for data in DATA)


def pieces_of(data: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    """Piece n came at n ns."""
    ends = sorted({cut % len(data) for cut in cuts} | {len(data)})
    starts = [0, *ends[:-1]]
    return list(enumerate(data[start:end] for start, end in zip(starts, ends, strict=True)))


@given(st.sampled_from([b"\n", b"\r\n"]), st.lists(st.integers(0, 200), max_size=40))
def test_any_split_gives_the_same_events(line, cuts):
    pieces = pieces_of(stream_of(line), cuts)
    found = list(read_events(pieces))
    assert [data for _, data in found] == DATA
    whole, at = b"", {}
    for t_ns, piece in pieces:
        whole += piece
        for data in DATA:
            if b"data: " + data + line * 2 in whole:
                at.setdefault(data, t_ns)
    assert [t_ns for t_ns, _ in found] == [at[data] for data in DATA], "the time of its last byte"


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"event: x\nid: 3\ndata: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\n\ndata: [DONE]", [b"a", b"[DONE]"]),
        (b"data: {\r\ndata:}\r\n\r\n", [b"{\n}"]),
        (BOM + b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (BOM, []),
        (b"data: a\n\n" + BOM + b"data: b\n\n", [b"a"]),
        (b": ping\n\n\n\n", []),
        (b"data:\n\ndata: \n\ndata: a\n\n", [b"a"]),
        (b"", []),
    ],
)
def test_forms_of_events(data, events):
    assert [found for _, found in read_events([(0, data)])] == events
    assert [found for _, found in read_events([(n, bytes([byte])) for n, byte in enumerate(data)])] == events
