"""A child process: starting it, sending it commands, and stopping it reliably."""

from __future__ import annotations

import contextlib
import json
import os
import select
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from specbench.harness.engines.base import NotReadyError
from specbench.harness.engines.child.wire import Command
from specbench.harness.engines.process.log_tail import telling_line
from specbench.harness.engines.process.supervised import Supervised, foreign_environment
from specbench.harness.engines.process.waiting import Waiting

Message = dict[str, Any]
_POLL_S = 0.1  # maximum delay until a cancel is sent, or a death that leaves the pipe open is noticed
_CLOSE_S = 10.0  # for the engine to end by itself


def never() -> bool:
    return False


class ChildProcess:
    """A context at whose end the process and all its descendants are guaranteed to be gone.

    Its output is appended to `log`. Raises RuntimeError for a command that cannot be run.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path):
        """`environment`: in addition to ours."""
        self.log = log
        self._process = Supervised(command, log=log, environment=foreign_environment(environment), pipes=True)
        self._partial = b""
        self._lines: deque[bytes] = deque()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, command: Command) -> None:
        """Asks it to open its engine, without waiting for it. RuntimeError where it has died."""
        self._send(command)

    def opened(self, limit_s: float, waiting: Waiting) -> Any:
        """What the engine reports about itself once it is up, after `begin`. Raises as `asking` does; NotReadyError
        after `limit_s`."""

        def is_overdue() -> bool:
            waiting.look("nothing in its log")
            if waiting.elapsed_s < limit_s:
                return False
            self._process.stop()
            raise NotReadyError(self._with_log(f"the engine {NotReadyError.SAID} {limit_s:g} s: {self._last_words()}"))

        return [message["opened"] for message in self._answers("opened", is_overdue) if "opened" in message][-1]

    def ask(self, command: Command, answer: str, is_cancelled: Callable[[], bool] = never) -> Any:
        """Sends a command and returns its single answer. Raises as `asking` does."""
        return [message[answer] for message in self.asking(command, answer, is_cancelled) if answer in message][-1]

    def asking(self, command: Command, last: str, is_cancelled: Callable[[], bool] = never) -> Iterator[Message]:
        """Yields the child's messages up to and including `last`. When `is_cancelled`, the child is sent a cancel.

        Raises ValueError for what the child reports as bad input, RuntimeError for lack of memory, errors of its engine
        and its death. After anything but a ValueError the child is unusable.
        """
        self._send(command)
        yield from self._answers(last, is_cancelled)

    def _answers(self, last: str, is_cancelled: Callable[[], bool]) -> Iterator[Message]:
        is_cancel_sent = False
        while True:
            if not is_cancel_sent and is_cancelled():
                self._send({"do": "cancel"})
                is_cancel_sent = True
            if (message := self._receive()) is None:
                continue
            if error := message.get("error"):
                raise self._exception(error)
            yield message
            if last in message:
                return

    def stop(self) -> int:
        """Stops it and returns its exit status; a negative one is the signal that ended it. May be called again."""
        try:
            if self._process.poll() is None:
                with contextlib.suppress(RuntimeError):
                    self._send({"do": "close"})
                self._process.wait(_CLOSE_S)
        finally:
            status = self._process.stop()
        return status

    def _send(self, message: Command) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                data = data[self._process.stdin.write(data) :]
        except BrokenPipeError as error:
            raise self._death() from error

    def _receive(self) -> Message | None:
        """The next message; None if none arrives in time."""
        while not self._lines:
            is_dead = self._process.poll() is not None  # before the last read, so that its final messages are not lost
            if not select.select([self._process.stdout], [], [], 0 if is_dead else _POLL_S)[0]:
                if is_dead:
                    raise self._death()
                return None
            if not (data := os.read(self._process.stdout.fileno(), 1 << 20)):
                raise self._death()
            *lines, self._partial = (self._partial + data).split(b"\n")
            self._lines.extend(lines)
        message: Message = json.loads(self._lines.popleft())
        return message

    def _exception(self, error: Mapping[str, str]) -> Exception:
        if error["kind"] == "input":
            return ValueError(error["text"])
        where = "out of memory: " if error["kind"] == "memory" else ""
        return RuntimeError(self._with_log(f"{where}{error['text']}"))

    def _with_log(self, text: str) -> str:
        return f"{text} (log: {self.log})"

    def _death(self) -> RuntimeError:
        status = self._process.stop()
        return RuntimeError(self._with_log(f"the engine's process ended with status {status}: {self._last_words()}"))

    def _last_words(self) -> str:
        return telling_line(self.log) or "nothing in its log"
