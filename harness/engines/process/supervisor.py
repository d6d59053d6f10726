"""Runs one command and ends everything that it started: python supervisor.py PARENT HOLD REPORT GRACE_S COMMAND...

A separate program, standard library only, so that it outlives the process PARENT that started the command.
HOLD is a descriptor of a pipe that the parent holds open. Its end of file (the parent is gone, however it died), a byte
`s`, SIGTERM, or the end of the command itself ends all descendants: SIGTERM, after GRACE_S seconds SIGKILL. A byte `k`
is SIGKILL immediately. REPORT receives JSON lines: {"pid": N} or {"failed": why}; {"status": N} when the command has
ended; {"left": [...]} when all are gone except those that SIGKILL did not end.

On Linux, /proc shows all descendants, and orphans become children of this process (child subreaper), so double forks
and new sessions do not escape. Elsewhere only the command's process group is ended. If this process itself is killed
with SIGKILL, the kernel kills the command (Linux), but not the command's own children.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

LINUX = sys.platform == "linux"
STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK_S = 1.0  # between two checks of the parent, in case another process inherited its end of the pipe
POLL_S = 0.05  # between two scans of /proc while processes end
GIVE_UP_S = 20.0  # after the first SIGKILL: what remains hangs in the kernel
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Supervisor:
    """`stop` and `kill`: whether requested; `status`: of the command, once it has ended."""

    def __init__(self, parent: int, hold: int, tell: Callable[..., None]):
        self.parent, self.hold, self.tell = parent, hold, tell
        self.pid = 0
        self.status: int | None = None
        self.stop = self.kill = False
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        for number in (signal.SIGCHLD, *STOP):
            signal.signal(number, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._sources = selectors.DefaultSelector()
        for end in (hold, self._wake):
            self._sources.register(end, selectors.EVENT_READ)

    def start(self, command: Sequence[str]) -> None:
        """OSError where it cannot be run. The command alone keeps the standard streams."""
        before_exec: Callable[[], object] | None = None
        if LINUX:
            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
            before_exec = lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # noqa: E731
        # Keep a reference: a discarded Popen reaps its process, and takes the status of one that has ended by then.
        self._command = subprocess.Popen(command, start_new_session=True, preexec_fn=before_exec)
        self.pid = self._command.pid
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)

    def wait(self, timeout_s: float) -> None:
        """Waits for a signal, a message of the parent, or the timeout; then records what happened."""
        for key, _ in self._sources.select(timeout_s):
            data = os.read(key.fd, 4096)
            if key.fd == self._wake:
                self.stop = self.stop or any(number in data for number in STOP)
                continue
            self.stop, self.kill = True, self.kill or b"k" in data
            if not data:
                self._sources.unregister(self.hold)
        self.stop = self.stop or os.getppid() != self.parent
        self._reap()

    def end_all(self, grace_s: float) -> list[int]:
        """Ends all descendants; returns those that could not be ended."""
        kill_at = time.monotonic() + grace_s
        terminated: set[int] = set()
        while True:
            # A scan of /proc can miss a process that is forked during it. That no child is left, however, is certain,
            # since every orphan becomes our child. So the scan only determines what to end, not when to stop.
            left = self._left()
            if not self._reap() and not left:
                return []
            now = time.monotonic()
            if self.kill:
                kill_at = min(kill_at, now)
            if now > kill_at + GIVE_UP_S:
                return left or [self.pid]
            number = signal.SIGKILL if now >= kill_at else signal.SIGTERM
            for pid in left:
                if number == signal.SIGKILL or pid not in terminated:
                    _send(pid, number)
            terminated.update(left)
            self.wait(POLL_S)

    def _reap(self) -> bool:
        """Reaps children; whether any are left. A multi-threaded one ends, and has a status, with its last thread."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)
                self.tell(status=self.status)

    def _left(self) -> list[int]:
        """Descendants that live; a process group as its negative number."""
        if LINUX:
            return _descendants(os.getpid())
        return [-self.pid] if _send(-self.pid, 0) else []


def _send(pid: int, number: int) -> bool:
    """Sends a signal; whether the process existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process: it exists, and will be reported as left
        return True
    return True


def _descendants(ancestor: int) -> list[int]:
    """Zombies do not count: the process that inherits them reaps them."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
            continue
        children.setdefault(int(parent), []).append(int(name))
        if state in b"ZX":
            zombies.add(int(name))
    found: list[int] = []
    ahead = [ancestor]
    while ahead:
        ahead = [child for pid in ahead for child in children.get(pid, ())]
        found += ahead
    return [pid for pid in found if pid not in zombies]


def main(argv: Sequence[str]) -> None:
    parent, hold, report = map(int, argv[:3])

    def tell(**what: object) -> None:
        try:
            os.write(report, json.dumps(what).encode() + b"\n")
        except BrokenPipeError:  # the parent is gone
            pass

    supervisor = Supervisor(parent, hold, tell)
    try:
        supervisor.start(argv[4:])
    except OSError as error:
        tell(failed=error.strerror or str(error))
        return
    tell(pid=supervisor.pid)
    while supervisor.status is None and not supervisor.stop:
        supervisor.wait(LOOK_S)
    tell(left=supervisor.end_all(float(argv[3])))


if __name__ == "__main__":
    main(sys.argv[1:])
