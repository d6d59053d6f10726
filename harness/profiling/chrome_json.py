"""Reads a Chrome trace (JSON) one event at a time, so that a large one never stands in memory as objects."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Generator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TypedDict

from specbench.workloads.json_values import Json


class TraceEvent(TypedDict, total=False):
    """Of the Trace Event Format. Times are us: whole numbers, or text with a fraction."""

    ph: str
    cat: str
    name: str
    ts: int | str
    dur: int | str
    pid: int | str
    tid: int | str
    args: dict[str, Json]


_Placed = tuple[TraceEvent, int, int]  # an event, and where its text begins and ends

_SPACE = re.compile(r"\s*")
_SEPARATOR = re.compile(r"\s*,\s*")


class ChromeTrace:
    """A trace file: iterate for its events (dicts), once; `header` then holds everything else of the file.

    Numbers with a fraction arrive as text: timestamps in us have more digits than a float. ValueError, naming `file`,
    for what is no such trace or is cut short.
    """

    def __init__(self, path: Path, file: str):
        self._file = file
        self._text = _text_of(path, file)
        self._decoder = json.JSONDecoder(parse_float=str)
        self.header: dict[str, Json] = {}

    def __iter__(self) -> Iterator[TraceEvent]:
        return (event for event, _, _ in self._checked())

    def with_text(self) -> Iterator[tuple[TraceEvent, str]]:
        """Events, each with the text that it stands as in the file."""
        return ((event, self._text[start:end]) for event, start, end in self._checked())

    def _checked(self) -> Iterator[_Placed]:
        try:
            yield from self._items()
        except (json.JSONDecodeError, IndexError, RecursionError) as error:
            raise ValueError(
                f"trace: {self._file} breaks off or is damaged ({error}); copy it again, or let the profiler finish "
                "writing"
            ) from error

    def _items(self) -> Iterator[_Placed]:
        at = self._space(0)
        if self._text[at] == "[":  # events alone are a Chrome trace as well
            yield from self._events(at)
            return
        has_events = False
        at = self._after(at, "{")
        while self._text[at] != "}":
            key, at = self._decoder.raw_decode(self._text, at)
            at = self._after(self._space(at), ":")
            if key == "traceEvents":
                has_events = True
                at = yield from self._events(at)
            else:
                self.header[key], at = self._decoder.raw_decode(self._text, at)
            at = self._next(at, "}")
        if not has_events:
            raise ValueError(
                f"trace: {self._file} is JSON, but no trace (it has no traceEvents); give what torch.profiler's "
                "export_chrome_trace wrote, or an nsys sqlite export"
            )

    def _events(self, at: int) -> Generator[_Placed, None, int]:
        """Yields the events of the list that begins at `at`; returns the position behind it."""
        text, decode, separator = self._text, self._decoder.raw_decode, _SEPARATOR.match
        event: TraceEvent
        at = self._after(at, "[")
        while text[at] != "]":
            start = at
            event, at = decode(text, at)
            if isinstance(event, dict):
                yield event, start, at
            match = separator(text, at)
            at = match.end() if match else self._next(at, "]")
        return at + 1

    def _space(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        assert match is not None
        return match.end()

    def _after(self, at: int, character: str) -> int:
        if self._text[at] != character:
            raise json.JSONDecodeError(f"Expecting {character!r}", self._text, at)
        return self._space(at + 1)

    def _next(self, at: int, closing: str) -> int:
        """The position of the next item, or of the closing bracket."""
        at = self._space(at)
        return at if self._text[at] == closing else self._after(at, ",")


def _text_of(path: Path, file: str) -> str:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return data.decode("utf-8", errors="surrogateescape")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"trace: {file} cannot be unpacked ({error}); it may be cut short: copy it again") from error


def us_to_ns(value: int | str) -> int:
    """Microseconds, as `ChromeTrace` gives them, to ns."""
    if isinstance(value, int):
        return value * 1000
    if value[-4:-3] == "." and value[-3:].isdigit():  # as Kineto writes them
        return int(value[:-4] + value[-3:])
    return round(Decimal(value) * 1000)
