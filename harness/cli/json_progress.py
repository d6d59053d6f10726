"""Progress as lines of JSON on stderr, for programs that show or store it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from specbench.harness.run.progress import Place
from specbench.harness.store.rows import RequestRow

_EVERY_S = 1.0  # between two lines about a block's requests


class JsonProgress:
    """Each line is an object with `event`, `command` and `elapsed_s`. Events: message (`text`), download (`name`,
    `done_bytes`, `total_bytes`), place, block and requests; the last three say where the command is."""

    is_quiet = False

    def __init__(self, command: str, stream: TextIO | None = None):
        self._command, self._stream = command, sys.stderr if stream is None else stream
        self._began = self._block_began = self._said = time.monotonic()
        self._where: dict[str, str | int] = {}
        self._remaining: tuple[float, float] | None = None  # seconds, and when they were computed
        self._done = self._total = self._tokens = 0

    def __enter__(self) -> JsonProgress:
        return self

    def __exit__(self, *exc: object) -> None: ...

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing to pause: a line disturbs no other output."""
        yield

    def say(self, text: str) -> None:
        self._write("message", text=text)

    def asset(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._said >= _EVERY_S or done == total:
            self._said = now
            self._write("download", name=name, done_bytes=done, total_bytes=total or None)

    def at(self, place: Place) -> None:
        if "point" in place.counts:
            self._where.clear()
        counts = {name: n for name, (n, _) in place.counts.items()}
        self._where |= counts | {f"num_{name}s": num for name, (_, num) in place.counts.items()}
        self._where["label"] = place.label
        if "point" in place.counts or "point" not in self._where:  # in a sweep: for the whole sweep, not one run
            self._remaining = None if place.remaining_s is None else (place.remaining_s, time.monotonic())
        self._done = self._total = self._tokens = 0
        self._write("place", **self._state())

    def start_block(self, what: str, num_requests: int) -> None:
        self._done, self._total, self._tokens = 0, num_requests, 0
        self._block_began = self._said = time.monotonic()
        self._write("block", text=what, **self._state())

    def request_done(self, row: RequestRow) -> None:
        self._done, self._tokens, now = self._done + 1, self._tokens + row.num_output_tokens, time.monotonic()
        if now - self._said >= _EVERY_S or self._done == self._total:
            self._said = now
            self._write("requests", **self._state())

    def _state(self) -> dict[str, str | int | float | None]:
        now = time.monotonic()
        left = None if self._remaining is None else max(0.0, self._remaining[0] - (now - self._remaining[1]))
        per_s = self._tokens / max(now - self._block_began, 1e-9) if self._done else None
        return {
            **self._where,
            "requests_done": self._done,
            "num_requests": self._total,
            "tokens_per_s": None if per_s is None else round(per_s, 1),
            "remaining_s": None if left is None else round(left, 1),
        }

    def _write(self, event: str, **values: str | int | float | None) -> None:
        elapsed_s = round(time.monotonic() - self._began, 3)
        line = {"event": event, "command": self._command, "elapsed_s": elapsed_s, **values}
        self._stream.write(f"{json.dumps(line)}\n")
        self._stream.flush()
