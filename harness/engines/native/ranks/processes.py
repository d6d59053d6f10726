"""The ranks from outside: started, ordered and ended together.

This process is not a rank, so a rank that dies, or that waits on its GPU for one that did, does not affect it: finished
work is on disk, and the other ranks are killed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from specbench.harness.engines.base import EndedError
from specbench.harness.engines.native.ranks.wire import Done, Failed, Notice, Order
from specbench.harness.engines.process.log_tail import telling_line
from specbench.harness.engines.process.supervised import Supervised

_POLL_S = 0.2  # between two looks at who is alive
_OTHERS_S = 5.0  # that other ranks have to end an order as well once one has failed
_GRACE_S = 1.0  # a rank has nothing to put in order


class RankError(Exception):
    """The traceback of a rank, as the cause of the error that it raised."""


class _Process:
    def __init__(self, module: str, rank: int, size: int, folder: Path):
        self.rank, self.log = rank, folder / f"rank{rank}.log"
        # One seed of hashes: no order of a set may differ between ranks.
        own = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONHASHSEED": "0"}
        if sys.platform == "linux":
            own["GLOO_SOCKET_IFNAME"] = "lo"  # a host's name need not resolve
        command = [sys.executable, "-m", module, str(rank), str(size), str(folder / "meeting")]
        self.process = Supervised(
            command, log=self.log, environment={**os.environ, **own}, pipes=True, grace_s=_GRACE_S
        )
        self.orders = Connection(os.dup(self.process.stdin.fileno()), readable=False)
        self.answers = Connection(os.dup(self.process.stdout.fileno()), writable=False)

    def stop(self) -> None:
        self.orders.close()
        self.answers.close()
        self.process.stop()

    def death(self) -> str | None:
        """How the process ended; None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        last_line = telling_line(self.log)
        return f"rank {self.rank} {how}{f': {last_line}' if last_line and status >= 0 else ''}"


class Processes:
    """`size` ranks. Any error ends all of them for good, except bad input, or a lack of memory on every rank."""

    def __init__(self, size: int, module: str = f"{__package__}.rank"):
        self._size = size
        self._folder = tempfile.TemporaryDirectory(prefix="specbench-ranks-")
        self._ended = ""  # why
        self._processes: list[_Process] = []
        try:
            for rank in range(size):
                self._processes.append(_Process(module, rank, size, Path(self._folder.name)))
        except BaseException:
            self.end("not all ranks could be started")
            raise

    @property
    def ended(self) -> bool:
        return bool(self._ended)

    @property
    def pids(self) -> list[int]:
        return [each.process.pid for each in self._processes]

    def end(self, why: str) -> None:
        if self._ended:
            return
        self._ended = why
        with contextlib.ExitStack() as ends:
            ends.callback(self._folder.cleanup)
            for each in self._processes:
                ends.callback(each.stop)

    def ask(self, receiver: object, name: str, *args: Any) -> Any:
        """Sends an order to all ranks and waits for all; returns rank 0's answer. Its messages in between go to
        `receiver`.

        ValueError if every rank reports one, RuntimeError for everything else that goes wrong.
        """
        if self._ended:
            raise EndedError(f"tensor_parallel_size: the ranks have ended: {self._ended}")
        try:
            with contextlib.suppress(BrokenPipeError):  # a death, which is found below
                for each in self._processes:
                    each.orders.send(Order(name, args))
            answers = self._answers(receiver)
            failures = {rank: a for rank, a in answers.items() if isinstance(a, Failed)}
            if failures:
                raise self._error(failures)
            done = [answers[rank] for rank in range(self._size)]
            self._check_same_way(done)
        except (ValueError, _EverywhereError):
            raise
        except BaseException as error:
            self.end(str(error) or type(error).__name__)
            raise
        return done[0].value

    def _answers(self, receiver: object) -> dict[int, Any]:
        """Answers of every rank; once one has failed, those that arrive in time."""
        answers: dict[int, Done | Failed] = {}
        give_up_at = float("inf")
        while len(answers) < self._size and time.monotonic() < give_up_at:
            for rank, message in self._messages(set(range(self._size)) - set(answers)):
                if isinstance(message, Notice):
                    getattr(receiver, message.name)(*message.args)
                    continue
                answers[rank] = message
                if isinstance(message, Failed):
                    give_up_at = min(give_up_at, time.monotonic() + _OTHERS_S)
        return answers

    def _messages(self, ranks: set[int]) -> Iterator[tuple[int, Any]]:
        """RuntimeError for a rank whose process has ended."""
        by_line = {self._processes[rank].answers: rank for rank in ranks}
        dead = [
            each for each in self._processes if each.death()
        ]  # before the last read, so that final messages are not lost
        for line in wait(list(by_line), _POLL_S):
            assert isinstance(line, Connection)
            try:
                yield by_line[line], line.recv()
            except (EOFError, ConnectionResetError):
                self._processes[by_line[line]].process.wait(_OTHERS_S)
                dead.append(self._processes[by_line[line]])
        if dead:
            raise RuntimeError(f"tensor_parallel_size: {dead[0].death() or f'rank {dead[0].rank} closed its line'}")

    def _error(self, failures: dict[int, Failed]) -> Exception:
        rank, first = min(failures.items())
        kinds = {failure.kind for failure in failures.values()}
        is_everywhere = len(failures) == self._size and len(kinds) == 1
        if is_everywhere and first.kind == "input":
            return ValueError(first.text)
        where = "out of memory: " if first.kind == "memory" else ""
        kind = _EverywhereError if is_everywhere and first.kind == "memory" else RuntimeError
        error = kind(f"rank {rank}: {where}{first.text}")
        error.__cause__ = RankError(first.traceback)
        return error

    def _check_same_way(self, done: list[Done]) -> None:
        others = [rank for rank, each in enumerate(done) if each.way != done[0].way]
        if others:
            raise RuntimeError(
                f"tensor_parallel_size: rank {others[0]} drew other tokens or made other steps than rank 0; the block "
                "is not to be trusted"
            )


class _EverywhereError(RuntimeError):
    """The same error on every rank: none waits for another, so they can continue."""
