"""A server of another engine: started on a free loopback port, awaited, and reliably ended."""

from __future__ import annotations

import http.client
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.base import NotReadyError
from specbench.harness.engines.process.log_tail import telling_line
from specbench.harness.engines.process.server_command import HOST, ServerCommand, free_port, is_free
from specbench.harness.engines.process.supervised import GRACE_S, Supervised, foreign_environment
from specbench.harness.engines.process.waiting import Waiting

_PORTS = 3  # attempts, in case another program takes our port before the server does
_LOOK_S = 0.2  # between two polls of the server
_ANSWER_S = 5.0  # for an answer to a health check
_DEATH_S = 3.0  # to detect that the server has ended after a connection broke


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """Seconds: for a server to answer, and between SIGTERM and SIGKILL."""

    startup_s: float
    grace_s: float = GRACE_S


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that has answered. `root`: its address without a path. `health`: paths, one of which answers 200."""

    name: str
    root: str
    process: Supervised
    health: tuple[str, ...]

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    @property
    def log(self) -> Path:
        return self.process.log

    def check_alive(self) -> None:
        """RuntimeError of one line if it has ended. On a busy machine the supervisor may report this late, so a server
        that does not answer gets some time."""
        answers = _health(_port(self.root), self.health) == ""
        self._raise_for(self.process.wait(0 if answers else _DEATH_S))

    def explained(self, error: Exception) -> Exception:
        """The cause of a client's failure: that of `check_alive` if the server has ended."""
        try:
            self._raise_for(self.process.wait(_DEATH_S))
        except RuntimeError as cause:
            return cause
        return error

    def _raise_for(self, status: int | None) -> None:
        if status is not None:
            raise RuntimeError(f"{self.name}: {_ended(status)}: {log_words(self.log)}")


@contextmanager
def running(
    command: ServerCommand, *, model: str, label: str, say: Callable[[str], None], log: Path, patience: Patience
) -> Iterator[RunningServer]:
    """A context in which the server runs. Its output is appended to `log`.

    ValueError if the user's port is taken. RuntimeError, of one line with the last line of the log and its path, for a
    server that cannot be started, ends, or (NotReadyError) does not answer in time.
    """
    fixed = command.fixed_port
    if fixed is not None and not is_free(fixed):
        raise ValueError(
            f"engine_command: port {fixed} is taken; stop what listens there, or write {{port}} for a free one"
        )
    for left in reversed(range(_PORTS)):
        port = fixed or free_port()
        with Supervised(
            command.filled(port=port, model=model),
            log=log,
            environment=foreign_environment(command.environment),
            grace_s=patience.grace_s,
        ) as process:
            server = RunningServer(command.name, f"http://{HOST}:{port}", process, command.health)
            say(f"{label}: starting {command.name} at {server.root} (log: {log})")
            if _is_ready(server, command, label, say, patience.startup_s, may_retry=left > 0 and fixed is None):
                yield server
                return


def _is_ready(
    server: RunningServer,
    command: ServerCommand,
    label: str,
    say: Callable[[str], None],
    startup_s: float,
    *,
    may_retry: bool,
) -> bool:
    """Waits until the server is ready. False if it has ended because another program has taken its port."""
    waiting = Waiting(say, f"{label}: waiting for {command.name}", server.log)
    port = _port(server.root)
    while True:
        answer = _health(port, command.health)
        status = server.process.wait(_LOOK_S)
        if status is not None:
            if may_retry and not is_free(port):
                say(f"{label}: port {port} was taken in the meantime; trying another")
                return False
            raise RuntimeError(f"{command.name}: {_ended(status)} before it answered: {log_words(server.log)}")
        if answer == "":
            return True
        if waiting.elapsed_s >= startup_s:
            raise NotReadyError(
                f"{command.name}: the server {NotReadyError.SAID} {startup_s:g} s ({answer}): {log_words(server.log)}"
            )
        waiting.look(answer)


def _port(root: str) -> int:
    return int(root.rpartition(":")[2])


def _health(port: int, paths: tuple[str, ...]) -> str:
    """Empty if the server is ready, otherwise its state. If a path does not exist, the next one is tried."""
    answer = "no answer"
    for path in paths:
        connection = http.client.HTTPConnection(HOST, port, timeout=_ANSWER_S)
        try:
            connection.request("GET", path)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"{path}: {type(error).__name__}"
        finally:
            connection.close()
        if status == 200:
            return ""
        answer = f"{path} answers {status}"
        if status != 404:
            break
    return answer


def log_words(log: Path) -> str:
    return f"{telling_line(log) or 'it wrote nothing'} (log: {log})"


def _ended(status: int) -> str:
    how = f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
    return f"the server ended {how}"
