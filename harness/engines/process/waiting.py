"""What is said while an engine starts, which can take minutes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from specbench.harness.engines.process.log_tail import telling_line

_SAY_S = 10.0  # between two lines


class Waiting:
    """Says now and then for how long an engine has been waited for, and how its log ends.

    `say`: gets a line. `whom`: its first words, as "eagle: waiting for vLLM".
    """

    def __init__(self, say: Callable[[str], None], whom: str, log: Path):
        self._say, self._whom, self._log = say, whom, log
        self._start = self._said = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    def look(self, otherwise: str) -> None:
        """To be called often. `otherwise`: what is known of an engine that has written nothing."""
        now = time.monotonic()
        if now - self._said >= _SAY_S:
            self._said = now
            self._say(f"{self._whom}, {now - self._start:.0f} s: {telling_line(self._log) or otherwise}")
