"""Progress messages while an engine starts, which can take minutes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from specbench.harness.engines.process.log_tail import telling_line

_REPORT_EVERY_S = 10.0  # between two lines


class Waiting:
    """Periodically reports how long an engine has been starting, and the end of its log.

    `say`: receives a line. `prefix`: its beginning, as "eagle: waiting for vLLM".
    """

    def __init__(self, say: Callable[[str], None], prefix: str, log: Path):
        self._say, self._prefix, self._log = say, prefix, log
        self._start = self._reported = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    def look(self, otherwise: str) -> None:
        """To be called often. `otherwise`: printed for an engine whose log is empty."""
        now = time.monotonic()
        if now - self._reported >= _REPORT_EVERY_S:
            self._reported = now
            self._say(f"{self._prefix}, {now - self._start:.0f} s: {telling_line(self._log) or otherwise}")
