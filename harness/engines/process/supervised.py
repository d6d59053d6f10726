"""An external process with all its descendants, from its start to its guaranteed end.

    with Supervised(["vllm", "serve", ...], log=path) as server:
        server.poll()                # None while it runs
                                     # here nothing of it is left

Whatever ends the `with` block, or this Python, ends the process too: see supervisor.py.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from specbench.harness.engines.process import supervisor

GRACE_S = 10.0  # between SIGTERM and SIGKILL
# API keys of clients; a process that we start must neither get them nor require them from us.
_SECRET = ("OPENAI_API_KEY", "VLLM_API_KEY")


def foreign_environment(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """The user's environment without variables for specbench or for clients of servers, plus `own`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SPECBENCH_") and k not in _SECRET}
    return {**kept, "PYTHONUNBUFFERED": "1", **(own or {})}


class Supervised:
    """A command that runs from here until it ends, `stop` is called, or this process is gone.

    `log` is appended to; it takes stderr, and stdout where there are no `pipes`. With them `stdin` and `stdout` are
    those of the command, in bytes and unbuffered. `environment`: by default `foreign_environment()`. Raises
    RuntimeError for a command that cannot be run and for descendants that cannot be ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        pipes: bool = False,
        grace_s: float = GRACE_S,
    ):
        self.command, self.log = tuple(command), log
        self._grace_s = grace_s
        self._status: int | None = None
        self._report, self._hold, self._supervisor = self._start(environment, pipes)
        report = self._read_report()
        if "pid" not in report:
            self._supervisor.wait()
            self._close()
            raise RuntimeError(f"{command[0]} cannot be run: {report.get('failed', 'see ' + str(log))}")
        self.pid = int(str(report["pid"]))

    @property
    def stdin(self) -> IO[bytes]:
        assert self._supervisor.stdin is not None, "started without pipes"
        return self._supervisor.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._supervisor.stdout is not None, "started without pipes"
        return self._supervisor.stdout

    def poll(self) -> int | None:
        """The command's exit status (negative: a signal) once it has ended; None before."""
        return self.wait(0)

    def wait(self, timeout_s: float) -> int | None:
        """As `poll`, after at most this long."""
        if self._status is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._report, selectors.EVENT_READ)
                if ready.select(timeout_s):
                    self._status = self._read_status()
        return self._status

    def stop(self) -> int:
        """Ends it and all its descendants, and returns its exit status. Interrupted, it ends them without grace."""
        if self._report.closed:
            assert self._status is not None
            return self._status
        try:
            self._ask(b"s")
            self._wait_for_supervisor()
            status = self.wait(0)
            left = self._read_report().get("left")
        except BaseException:
            self._ask(b"k")
            raise
        finally:
            self._close()
        if left or status is None:
            raise RuntimeError(f"{self.command[0]} does not end: SIGKILL was sent to processes {left or self.pid}")
        return status

    def __enter__(self) -> Supervised:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _start(
        self, environment: Mapping[str, str] | None, pipes: bool
    ) -> tuple[IO[bytes], IO[bytes], subprocess.Popen[bytes]]:
        """Uses file objects, not descriptors: whatever interrupts this, they are closed, and the supervisor ends."""
        hold_read, hold = os.pipe()
        report, report_write = os.pipe()
        files = os.fdopen(report, "rb", 0), os.fdopen(hold, "wb", 0)
        words = map(str, (os.getpid(), hold_read, report_write, self._grace_s))
        try:
            with self.log.open("ab") as log:
                running = subprocess.Popen(
                    [sys.executable, "-I", "-S", supervisor.__file__, *words, *self.command],
                    stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if pipes else log,
                    stderr=log,
                    bufsize=0,
                    pass_fds=(hold_read, report_write),
                    env=foreign_environment() if environment is None else dict(environment),
                    start_new_session=True,
                )
        finally:
            os.close(hold_read)
            os.close(report_write)
        return *files, running

    def _ask(self, word: bytes) -> None:
        try:
            self._hold.write(word)
        except (BrokenPipeError, ValueError):  # it has ended already; ValueError: and was closed here
            pass

    def _read_report(self) -> dict[str, object]:
        line = self._report.readline()
        return dict(json.loads(line)) if line else {}

    def _read_status(self) -> int:
        report = self._read_report()
        if "status" in report:
            return int(str(report["status"]))
        try:  # the supervisor was killed, the command with it (supervisor.py), and its group here
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self._supervisor.wait()

    def _wait_for_supervisor(self) -> None:
        try:
            self._supervisor.wait(self._grace_s + supervisor.GIVE_UP_S + 10)
        except (
            subprocess.TimeoutExpired
        ):  # the supervisor did not give up, yet does not end: it is stopped, or the machine hangs
            self._supervisor.kill()

    def _close(self) -> None:
        for file in (self._hold, self._report, self._supervisor.stdin, self._supervisor.stdout):
            if file is not None:
                file.close()
