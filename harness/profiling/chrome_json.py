"""Reads a Chrome trace (JSON) one event at a time, so that a large trace is never in memory as objects."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TypedDict

import msgspec

from specbench.workloads.guarded import MAX_TRACE_BYTES, read_bytes
from specbench.workloads.json_values import Json


class TraceEvent(TypedDict, total=False):
    """An event of the Trace Event Format. Times are us: whole numbers, or text with a fraction."""

    ph: str
    cat: str
    name: str
    ts: int | str
    dur: int | str
    pid: int | str
    tid: int | str
    args: dict[str, Json]


# Timestamps in us have more digits than a float: numbers with a fraction arrive as text.
_VALUE = msgspec.json.Decoder(float_hook=str)
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])


MAX_NS = 1 << 61  # 73 years: sums and differences of two are still int64


class ChromeTrace:
    """A trace file: iterate for its events (dicts); `header` holds everything else of the file.

    ValueError, naming `file`, for a file that is not such a trace or is cut short.
    """

    def __init__(self, path: Path, file: str):
        try:
            parts = _PARTS.decode(_text_of(path, file))
            header = parts if isinstance(parts, dict) else {}
            # Events alone are a Chrome trace as well.
            events = header.pop("traceEvents", None) if isinstance(parts, dict) else parts
            self._events = _EVENTS.decode(events) if isinstance(events, msgspec.Raw) else events or []
            self.header: dict[str, Json] = {key: _VALUE.decode(value) for key, value in header.items()}
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(
                f"trace: {file} is truncated or damaged ({error}); copy it again, or let the profiler finish writing"
            ) from error
        if events is None:
            raise ValueError(
                f"trace: {file} is JSON, but not a trace (it has no traceEvents); give what torch.profiler's "
                "export_chrome_trace wrote, or an nsys sqlite export"
            )

    def __iter__(self) -> Iterator[TraceEvent]:
        return (event for event, _ in self.with_text())

    def with_text(self) -> Iterator[tuple[TraceEvent, str]]:
        """Events, each with its original text."""
        for raw in self._events:
            event: TraceEvent = _VALUE.decode(raw)
            if isinstance(event, dict):
                yield event, bytes(raw).decode()


def _text_of(path: Path, file: str) -> str:
    try:
        return read_bytes(path, MAX_TRACE_BYTES).decode("utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise ValueError(f"trace: {file} cannot be unpacked ({error}); it may be cut short: copy it again") from error


def us_to_ns(value: int | str) -> int:
    """Microseconds, as `ChromeTrace` gives them, to ns. ValueError if it is not a time."""
    try:
        if type(value) is int:
            ns = value * 1000
        elif isinstance(value, str) and value[-4:-3] == "." and value[-3:].isdigit():  # as Kineto writes them
            ns = int(value[:-4] + value[-3:])
        else:
            us = Decimal(value)
            ns = round(us * 1000) if abs(us) < MAX_NS else MAX_NS
    except (ArithmeticError, TypeError, ValueError):  # text, NaN, a list
        ns = MAX_NS
    if abs(ns) >= MAX_NS:
        raise ValueError(f"{value!r:.60} is not a time in us")
    return ns
