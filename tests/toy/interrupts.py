"""Real signals: to a command in a process of its own, and to the tests' own process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def interrupted(words: Sequence[object], line: str) -> tuple[int, str]:
    """Runs `specbench` and sends SIGINT once stderr shows `line`; exit code and stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".ns"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "specbench.harness", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # A test run in the background may have SIGINT ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    seen = []
    for text in process.stderr:
        seen.append(text)
        if re.search(line, text):
            process.send_signal(signal.SIGINT)
            break
    _, rest = process.communicate(timeout=300)
    return process.returncode, "".join(seen) + rest


@contextmanager
def terminal_signals() -> Iterator[None]:
    """Handlers as in a terminal, whatever the tests run under; the same must stand there at the end."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    try:
        yield
        assert {number: signal.getsignal(number) for number in usual} == usual
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
