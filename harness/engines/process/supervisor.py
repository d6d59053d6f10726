"""Runs one command and ends everything that it started: python supervisor.py PARENT HOLD REPORT GRACE_S COMMAND...

A program of its own and of the standard library only, so that it outlives the process PARENT that wants the command.
HOLD is a descriptor of a pipe that the parent holds open. Its end of file (the parent is gone, however it died), a byte
`s`, SIGTERM, or the end of the command itself ends all descendants: SIGTERM, after GRACE_S seconds SIGKILL. A byte `k`
is SIGKILL at once. REPORT takes JSON lines: {"pid": N} or {"failed": why}; {"status": N} when the command has ended;
{"left": [...]} when all are gone but those that SIGKILL did not end.

On Linux /proc tells who descends from here, and those whose parents have died become children of this process (child
subreaper), so double forks and new sessions hide nobody. Elsewhere only the command's process group is ended. Should
this process itself be killed with SIGKILL, the kernel kills the command (Linux), but not the command's own children.
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
LOOK_S = 1.0  # between two looks at the parent, should its end of the pipe have been inherited by somebody
POLL_S = 0.05  # between two looks at /proc while processes end
GIVE_UP_S = 20.0  # after the first SIGKILL: what is still there hangs in the kernel
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Supervisor:
    """`stop` and `kill`: what has been asked for; `status`: of the command, once it has ended."""

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
        # Kept: a Popen that is thrown away waits for its process, and takes the status of one that has ended by then.
        self._command = subprocess.Popen(command, start_new_session=True, preexec_fn=before_exec)
        self.pid = self._command.pid
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)

    def wait(self, timeout_s: float) -> None:
        """Until a signal, a word of the parent, or the time is over; then notes what there is to note."""
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
        """Ends all descendants; those that could not be."""
        kill_at = time.monotonic() + grace_s
        told: set[int] = set()
        while True:
            # A look through /proc can miss what is forked during it. That no child is left cannot be missed: whatever
            # loses its parent becomes one of ours. So the look comes first and says whom to end, not when to stop.
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
                if number == signal.SIGKILL or pid not in told:
                    _send(pid, number)
            told.update(left)
            self.wait(POLL_S)

    def _reap(self) -> bool:
        """Whether children are left. One with threads ends, and has a status, with the last of them."""
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
    """Whether there was somebody to take it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user: it is there, and shows up among those that are left
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
        except BrokenPipeError:  # nobody is left to be told
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
