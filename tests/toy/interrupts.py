"""Real signals: to a command in a process of its own, at the same place at any speed, and to the tests' own process."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import warm

ROOT = Path(__file__).parents[2]
QUIET_PROC = Path(__file__).parent / "quiet_proc"
# A test run in the background may have SIGINT ignored, which children inherit.
_AS_IN_A_TERMINAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
# The process signals itself at the first step of an engine after its stderr has shown a line for the n-th time: a
# signal from outside would come as late as the machine is busy.
_PROGRAM = """
import os, re, sys
from pathlib import Path
number, pattern, nth, quiet_proc = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
del sys.argv[1:5]

class Watched:
    def __init__(self, inner):
        self.inner, self.text, self.armed = inner, "", False

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def write(self, text):
        self.text += text
        self.armed = self.armed or len(re.findall(pattern, self.text)) >= nth
        return self.inner.write(text)

sys.stderr = Watched(sys.stderr)
from specbench.harness.engines.native.core.engine import Engine
step = Engine.step

def watched_step(engine):
    if sys.stderr.armed:
        os.kill(os.getpid(), number)
    return step(engine)

Engine.step = watched_step
import math
from specbench.harness.metrics import doubts
from specbench.harness.run import machine_state

doubts.MAX_GAIN, machine_state.PROC = math.inf, quiet_proc  # as for the tests' own process
from specbench.harness.cli.main import main
main()
"""


def interrupted(
    words: Sequence[object], line: str, number: signal.Signals = signal.SIGINT, nth: int = 1
) -> tuple[int, str, str]:
    """Runs `specbench`, which gets the signal in the first step after the `nth` match of `line` on stderr; exit code,
    stdout, stderr."""
    given = [str(int(number)), line, str(nth), str(QUIET_PROC), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".ns"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        streams = [nothing.fileno(), out.fileno(), err.fileno()]
        code = warm.asked(warm.server(), _AS_IN_A_TERMINAL + _PROGRAM, given, streams, environment)
        said = [Path(f"/proc/self/fd/{file.fileno()}").read_text() for file in (out, err)]
    return code, said[0], said[1]


@contextmanager
def terminal_signals() -> Iterator[None]:
    """Handlers as in a terminal, whatever the tests run under; the same must stand there at the end."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    try:
        yield
        assert {number: signal.getsignal(number) for number in usual} == usual
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
